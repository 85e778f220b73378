//! Ignored signals.

/// Whether this process was started with a signal ignored, as by `nohup`. Must be called before a
/// handler is installed.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // The system call would need unsafe code. Other systems do not have this file.
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, signal))
}

fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1)
        .ok()
        .and_then(|shift| 1_u64.checked_shl(shift));
    mask.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_found() {
        let status =
            "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004000\n";
        let found: Vec<i32> = (0..=64).filter(|signal| ignores(status, *signal)).collect();
        assert_eq!(found, [1, 13], "SIGHUP and SIGPIPE");
        assert!(!ignores("", 1));
    }
}
