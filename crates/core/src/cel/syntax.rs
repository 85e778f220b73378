//! Reads an expression: text to tree.

mod lexer;

use super::Problem;
use lexer::{Lexer, Token};

/// The longest way from the root of an expression to a leaf. Those who walk the tree call
/// themselves as often.
const MAX_DEPTH: usize = 100;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Where it is, in bytes from the start.
    pub(super) at: usize,
    pub(super) kind: Kind,
    depth: usize,
}

impl Node {
    /// A text that stands for what is written there in another way.
    pub(super) fn text(at: usize, text: &str) -> Self {
        Self {
            at,
            kind: Kind::Text(text.to_owned()),
            depth: 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Name(String),
    Field(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Call {
        target: Option<Box<Node>>,
        function: String,
        arguments: Vec<Node>,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Operators from the weakest to the strongest, with how they are written.
const LEVELS: &[&[(&str, Operator)]] = &[
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
        ("in", Operator::In),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[
        ("*", Operator::Multiply),
        ("/", Operator::Divide),
        ("%", Operator::Remainder),
    ],
];

/// Reads a whole expression.
pub(super) fn parse(source: &str) -> Result<Node, Problem> {
    let mut parser = Parser {
        lexer: Lexer::new(source)?,
        depth: 0,
    };
    let root = parser.choice()?;
    match parser.lexer.next() {
        (_, Token::End) => Ok(root),
        (at, token) => Err(Problem::new(
            at,
            format!("{token} is not expected here: the expression has ended"),
        )),
    }
}

struct Parser {
    lexer: Lexer,
    depth: usize,
}

impl Parser {
    /// `condition ? a : b`, or anything stronger.
    fn choice(&mut self) -> Result<Node, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep(self.lexer.peek().0));
        }
        let condition = self.binary(0)?;
        let node = if self.lexer.accept("?") {
            let yes = self.binary(0)?;
            self.lexer.expect(":")?;
            let no = self.choice()?;
            let depth = condition.depth.max(yes.depth).max(no.depth);
            node(
                condition.at,
                Kind::Choice(Box::new(condition), Box::new(yes), Box::new(no)),
                depth,
            )?
        } else {
            condition
        };
        self.depth -= 1;
        Ok(node)
    }

    fn binary(&mut self, level: usize) -> Result<Node, Problem> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.lexer.accept(sign)) {
            let right = self.binary(level + 1)?;
            let (at, depth) = (left.at, left.depth.max(right.depth));
            left = node(
                at,
                Kind::Binary(*operator, Box::new(left), Box::new(right)),
                depth,
            )?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, Problem> {
        let (at, _) = self.lexer.peek();
        let mut signs = Vec::new();
        loop {
            if self.lexer.accept("!") {
                signs.push('!');
            } else if self.lexer.accept("-") {
                signs.push('-');
            } else {
                break;
            }
        }
        let mut operand = match (signs.last(), self.lexer.peek()) {
            // The least number has no positive twin.
            (Some('-'), (_, Token::Int(magnitude))) => {
                signs.pop();
                self.lexer.next();
                let number = 0_i64.checked_sub_unsigned(magnitude);
                let number = number.ok_or_else(|| too_large(at))?;
                let literal = node(at, Kind::Int(number), 0)?;
                self.members(literal)?
            }
            _ => self.member()?,
        };
        for sign in signs.into_iter().rev() {
            let depth = operand.depth;
            let kind = match sign {
                '!' => Kind::Not(Box::new(operand)),
                _ => Kind::Negate(Box::new(operand)),
            };
            operand = node(at, kind, depth)?;
        }
        Ok(operand)
    }

    fn member(&mut self) -> Result<Node, Problem> {
        let primary = self.primary()?;
        self.members(primary)
    }

    /// What follows a value: `.field`, `.function(...)`, `[index]`.
    fn members(&mut self, mut value: Node) -> Result<Node, Problem> {
        loop {
            let at = value.at;
            if self.lexer.accept(".") {
                let name = self.name()?;
                if self.lexer.accept("(") {
                    let arguments = self.items(")")?;
                    let depth = deepest(&arguments).max(value.depth);
                    let kind = Kind::Call {
                        target: Some(Box::new(value)),
                        function: name,
                        arguments,
                    };
                    value = node(at, kind, depth)?;
                } else {
                    let depth = value.depth;
                    value = node(at, Kind::Field(Box::new(value), name), depth)?;
                }
            } else if self.lexer.accept("[") {
                let index = self.choice()?;
                self.lexer.expect("]")?;
                let depth = value.depth.max(index.depth);
                value = node(at, Kind::Index(Box::new(value), Box::new(index)), depth)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, Problem> {
        let (at, token) = self.lexer.next();
        let (kind, depth) = match token {
            Token::Int(magnitude) => {
                let number = i64::try_from(magnitude).map_err(|_| too_large(at))?;
                (Kind::Int(number), 0)
            }
            Token::Text(text) => (Kind::Text(text), 0),
            Token::Word(word) if word == "true" || word == "false" => (Kind::Bool(word == "true"), 0),
            Token::Word(word) if word == "null" => {
                let message =
                    "there is no null here: every value is there, as an empty string or list if need be";
                return Err(Problem::new(at, message));
            }
            Token::Word(word) if lexer::is_reserved(&word) => {
                return Err(Problem::new(
                    at,
                    format!("{word} is no name: CEL keeps this word for itself"),
                ));
            }
            Token::Word(word) if self.lexer.accept("(") => {
                let arguments = self.items(")")?;
                let depth = deepest(&arguments);
                let kind = Kind::Call {
                    target: None,
                    function: word,
                    arguments,
                };
                (kind, depth)
            }
            Token::Word(word) => (Kind::Name(word), 0),
            Token::Sign("(") => {
                let inner = self.choice()?;
                self.lexer.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => {
                let items = self.items("]")?;
                let depth = deepest(&items);
                (Kind::List(items), depth)
            }
            Token::Sign("{") => self.map()?,
            Token::End => return Err(Problem::new(at, "the expression ends too early")),
            token @ Token::Sign(_) => return Err(Problem::new(at, format!("{token} is not expected here"))),
        };
        node(at, kind, depth)
    }

    /// The entries of a map, after its `{`.
    fn map(&mut self) -> Result<(Kind, usize), Problem> {
        let (mut entries, mut depth) = (Vec::new(), 0);
        while !self.lexer.accept("}") {
            let key = self.choice()?;
            self.lexer.expect(":")?;
            let value = self.choice()?;
            depth = depth.max(key.depth).max(value.depth);
            entries.push((key, value));
            if !self.lexer.accept(",") {
                self.lexer.expect("}")?;
                break;
            }
        }
        Ok((Kind::Map(entries), depth))
    }

    /// Items up to a closing sign.
    fn items(&mut self, close: &'static str) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        while !self.lexer.accept(close) {
            items.push(self.choice()?);
            if !self.lexer.accept(",") {
                self.lexer.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn name(&mut self) -> Result<String, Problem> {
        match self.lexer.next() {
            (_, Token::Word(word)) => Ok(word),
            (at, token) => Err(Problem::new(
                at,
                format!("{token} is no name of a field or a function"),
            )),
        }
    }
}

fn node(at: usize, kind: Kind, depth: usize) -> Result<Node, Problem> {
    if depth >= MAX_DEPTH {
        return Err(too_deep(at));
    }
    Ok(Node {
        at,
        kind,
        depth: depth + 1,
    })
}

fn deepest(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| node.depth).max().unwrap_or(0)
}

fn too_deep(at: usize) -> Problem {
    Problem::new(
        at,
        format!("more than {MAX_DEPTH} parts are inside of each other: make it simpler"),
    )
}

fn too_large(at: usize) -> Problem {
    Problem::new(at, "the number has more than 64 bits")
}
