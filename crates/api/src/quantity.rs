//! Amounts of resources as Kubernetes writes them: `500m`, `2`, `16Gi`, `1e3`.

/// An amount in billionths, which is as fine as Kubernetes counts. What is finer is rounded up;
/// what is larger than can be counted is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

const UNIT: i128 = 1_000_000_000;
/// API servers count with as many digits as a power of ten has, so that they take minutes for some
/// of ten bytes. Nothing has so much, or so little, of anything.
const MAX_EXPONENT: u32 = 100;

impl Amount {
    /// Reads an amount. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits = whole.bytes().chain(fraction.bytes());
        let mantissa = digits.fold(0_i128, |sum, digit| {
            sum.saturating_mul(10).saturating_add(i128::from(digit - b'0'))
        });
        let (factor, exponent) = scale(suffix)?;
        let exponent = exponent.saturating_sub(i32::try_from(fraction.len()).ok()?);
        let amount = shift(mantissa.saturating_mul(factor).saturating_mul(UNIT), exponent);
        Some(Self(if negative { -amount } else { amount }))
    }

    /// Whether it is less than nothing.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// In thousandths, rounded up.
    pub const fn thousandths(self) -> i128 {
        const THOUSANDTH: i128 = UNIT / 1000;
        self.0.div_euclid(THOUSANDTH) + (self.0.rem_euclid(THOUSANDTH) != 0) as i128
    }

    /// Whether it is a number of whole things.
    pub const fn is_whole(self) -> bool {
        self.0 % UNIT == 0
    }
}

/// The factor of a unit, and its power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    let decimal = |exponent: i32| Some((1, exponent));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => exponent
            .strip_prefix(['e', 'E'])
            .and_then(|exponent| exponent.parse().ok())
            .filter(|exponent: &i32| exponent.unsigned_abs() <= MAX_EXPONENT)
            .and_then(decimal),
    }
}

/// Multiplies with a power of ten, and rounds up.
fn shift(amount: i128, exponent: i32) -> i128 {
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    match (power, exponent) {
        (_, _) if amount == 0 => 0,
        (Some(power), 0..) => amount.saturating_mul(power),
        (None, 0..) => i128::MAX,
        (Some(power), _) => amount / power + i128::from(amount % power != 0),
        (None, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_reads_them() {
        let same = [
            ("1", "1000m"),
            ("1", "+1.0"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1k", "1000"),
            ("1Ki", "1024"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("1E-3", "1m"),
            ("1E", "1000P"),
            ("1Ei", "1024Pi"),
            ("0.1n", "1n"),
            ("1e-40", "1n"),
            ("0e90", "0"),
            ("-1", "-1000m"),
        ];
        for (one, other) in same {
            assert_eq!(Amount::parse(one), Amount::parse(other), "{one}");
            assert!(Amount::parse(one).is_some(), "{one}");
        }
        let rising = [
            "-1", "0", "1n", "999u", "1m", "1", "1k", "1Ki", "1M", "1Mi", "1Ei", "9e20", "9e90",
        ];
        for pair in rising.windows(2) {
            assert!(Amount::parse(pair[0]) < Amount::parse(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn what_is_no_amount() {
        for text in [
            "",
            "lots",
            ".",
            "-",
            "1.2.3",
            "1 Gi",
            "1gi",
            "1KiB",
            "1GB",
            "1e",
            "1e1.5",
            "0x10",
            "1_000",
            "1,5",
            "٣",
            "NaN",
            "inf",
            "--1",
            "1e+-3",
            "m",
            "1e101",
            "1e999999999",
            "1E-999999999",
        ] {
            assert_eq!(Amount::parse(text), None, "{text:?}");
        }
    }
}
