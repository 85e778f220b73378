//! Sentences of others, made fit for a line of a log.

/// One line without control characters: what somebody else wrote can't draw on a terminal or look
/// like two lines.
pub fn one_line(text: &str) -> String {
    let visible = text.replace(char::is_control, " ");
    let words: Vec<&str> = visible.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_words_and_drops_the_rest() {
        assert_eq!(one_line(" a\r\n b\t\x1b[31mc \u{9b}d\0e "), "a b [31mc d e");
        assert_eq!(one_line("\n\n"), "");
    }
}
