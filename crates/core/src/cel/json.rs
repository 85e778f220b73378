//! Values as JSON: without blanks, keys in the order of the alphabet.

use std::fmt::Write;

use super::fault::Fault;
use super::meter::Meter;
use super::value::Value;

/// Appends a value. Every part is paid for: a short expression can have the same list in a list a
/// million times.
pub(super) fn write(value: &Value, out: &mut String, meter: &mut Meter) -> Result<(), Fault> {
    meter.spend(1)?;
    match value {
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => drop(write!(out, "{number}")),
        Value::Text(text) => {
            meter.spend_text(text.len())?;
            write_text(text, out);
        }
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, out, meter)?;
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                meter.spend_text(key.len())?;
                write_text(key, out);
                out.push(':');
                write(value, out, meter)?;
            }
            out.push('}');
        }
        // The types of expressions rule this out.
        Value::Role(_) => out.push_str("null"),
    }
    Ok(())
}

/// Appends a text.
pub(super) fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
