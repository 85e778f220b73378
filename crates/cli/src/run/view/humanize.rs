//! Numbers and durations for people.

use std::time::Duration;

/// A duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..=9 => format!("{:.1} s", span.as_secs_f64()),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A metric with four significant digits.
pub fn number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{number:.3e}");
    }
    let digits = match size {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        _ => 4,
    };
    format!("{number:.digits$}")
}

/// `1 pod`, `2 pods`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (millis, text) in [
            (0, "0.0 s"),
            (412, "0.4 s"),
            (9_940, "9.9 s"),
            (12_900, "12 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn numbers() {
        for (value, text) in [
            (0.0, "0"),
            (0.035_801, "0.0358"),
            (2.345_67, "2.346"),
            (123.456, "123.5"),
            (65_536.4, "65536"),
            (0.000_1, "1.000e-4"),
            (-1.5, "-1.500"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn counts() {
        assert_eq!(
            (count(1, "pod"), count(4, "pod")),
            ("1 pod".to_owned(), "4 pods".to_owned())
        );
    }
}
