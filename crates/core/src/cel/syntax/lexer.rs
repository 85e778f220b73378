//! Cuts an expression into tokens.

use std::fmt;

use crate::cel::Problem;

/// Words that CEL keeps for itself.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// All signs; a longer one comes before those that it begins with.
const SIGNS: &[&str] = &[
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Int(u64),
    Text(String),
    Word(String),
    Sign(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Word(word) => f.write_str(word),
            Self::Sign(sign) => f.write_str(sign),
            Self::End => f.write_str("the end"),
        }
    }
}

/// The tokens of an expression, each with where it is.
pub(super) struct Lexer {
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
}

impl Lexer {
    pub(super) fn new(source: &str) -> Result<Self, Problem> {
        let mut scanner = Scanner { source, at: 0 };
        let mut tokens = Vec::new();
        while let Some(token) = scanner.token()? {
            tokens.push(token);
        }
        Ok(Self {
            tokens,
            next: 0,
            end: source.len(),
        })
    }

    pub(super) fn peek(&self) -> (usize, Token) {
        let end = || (self.end, Token::End);
        self.tokens.get(self.next).cloned().unwrap_or_else(end)
    }

    pub(super) fn next(&mut self) -> (usize, Token) {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Takes a sign, or the word `in`, if it comes next.
    pub(super) fn accept(&mut self, sign: &str) -> bool {
        let comes = match self.tokens.get(self.next) {
            Some((_, Token::Sign(next))) => *next == sign,
            Some((_, Token::Word(word))) => sign == "in" && word == "in",
            _ => false,
        };
        self.next += usize::from(comes);
        comes
    }

    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Problem> {
        if self.accept(sign) {
            return Ok(());
        }
        let (at, token) = self.peek();
        Err(Problem::new(
            at,
            format!("{token} is here, and {sign} is expected"),
        ))
    }
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn token(&mut self) -> Result<Option<(usize, Token)>, Problem> {
        self.skip_blanks();
        let at = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(None);
        };
        let token = if first.is_ascii_digit() {
            self.number()?
        } else if let Some((prefix, quote)) = self.quote() {
            self.at += prefix.len() + quote.len();
            Token::Text(self.text(at, quote, prefix.eq_ignore_ascii_case("r"))?)
        } else if first.is_ascii_alphabetic() || first == '_' {
            Token::Word(self.take(|c| c.is_ascii_alphanumeric() || c == '_'))
        } else if let Some(sign) = SIGNS.iter().find(|sign| self.rest().starts_with(**sign)) {
            self.at += sign.len();
            Token::Sign(sign)
        } else {
            return Err(Problem::new(at, format!("{first} means nothing in CEL")));
        };
        Ok(Some((at, token)))
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take(|c| c != '\n');
        }
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let taken = rest.get(..end).unwrap_or_default().to_owned();
        self.at += end;
        taken
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let at = self.at;
        let digits = self.take(|c| c.is_ascii_alphanumeric());
        let is_fraction =
            self.rest().starts_with('.') && self.rest().chars().nth(1).is_some_and(|c| c.is_ascii_digit());
        let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        match number {
            Ok(number) if !is_fraction => Ok(Token::Int(number)),
            _ => Err(Problem::new(
                at,
                "there are only whole numbers of at most 64 bits",
            )),
        }
    }

    /// How a text begins, if one does: the letter before the quote, and the quote.
    fn quote(&self) -> Option<(&'static str, &'static str)> {
        for prefix in ["", "r", "R"] {
            if let Some(rest) = self.rest().strip_prefix(prefix) {
                let quotes = ["\"\"\"", "'''", "\"", "'"];
                if let Some(quote) = quotes.into_iter().find(|quote| rest.starts_with(quote)) {
                    return Some((prefix, quote));
                }
            }
        }
        None
    }

    fn text(&mut self, start: usize, quote: &str, is_raw: bool) -> Result<String, Problem> {
        let mut text = String::new();
        loop {
            if self.rest().starts_with(quote) {
                self.at += quote.len();
                return Ok(text);
            }
            let at = self.at;
            match self.take_one() {
                Some('\\') if is_raw => {
                    text.push('\\');
                    text.extend(self.take_one());
                }
                Some('\\') => text.push(self.escape(at)?),
                Some('\n') if quote.len() == 1 => break,
                Some(c) => text.push(c),
                None => break,
            }
        }
        Err(Problem::new(start, format!("the text has no closing {quote}")))
    }

    fn take_one(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// The character of an escape sequence, after its backslash.
    fn escape(&mut self, at: usize) -> Result<char, Problem> {
        let unknown = || Problem::new(at, "this escape sequence is not known");
        let (digits, radix) = match self.take_one().ok_or_else(unknown)? {
            c @ ('\\' | '?' | '"' | '\'' | '`') => return Ok(c),
            'a' => return Ok('\x07'),
            'b' => return Ok('\x08'),
            'f' => return Ok('\x0c'),
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'v' => return Ok('\x0b'),
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(unknown()),
        };
        let mut code = 0;
        for _ in 0..digits {
            let digit = self
                .take_one()
                .and_then(|c| c.to_digit(radix))
                .ok_or_else(unknown)?;
            code = code * radix + digit;
        }
        char::from_u32(code).ok_or_else(unknown)
    }
}
