//! Medians and the like.

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

pub fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

pub fn p99(values: &[f64]) -> f64 {
    let values = sorted(values);
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

pub fn spread(values: &[f64]) -> String {
    let values = sorted(values);
    match (values.first(), values.last()) {
        (Some(least), Some(most)) if values.len() > 1 => format!("{least:.2} to {most:.2}"),
        _ => String::new(),
    }
}
