//! Expressions: what comes of them, what is wrong with them, and that CEL means the same.

use std::collections::HashMap;

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::members::Members;

fn vocabulary() -> Vocabulary {
    Vocabulary {
        roles: vec!["ps".to_owned(), "worker".to_owned()],
        params: vec![("port".to_owned(), Type::Int), ("mode".to_owned(), Type::Text)],
    }
}

fn names() -> Names<'static> {
    Names {
        job: "mnist",
        namespace: "team",
        domain: "mnist.team".to_owned(),
        master: None,
    }
}

/// A job `mnist` with a ps and three workers.
fn subject(kept: usize) -> Subject {
    let roles = vec![
        RoleFacts::new("ps", &Members::first(1), "mnist-ps-{}".to_owned()),
        RoleFacts::new("worker", &Members::first(3), "mnist-worker-{}".to_owned()),
    ];
    Subject::new(names(), roles, vec![Value::Int(9091), Value::text("sync")], kept)
}

fn compile(source: &str) -> Result<(Expression, usize), String> {
    let vocabulary = vocabulary();
    let mut checker = Checker::new(&vocabulary);
    let expression = checker
        .of_pod(source)
        .map_err(|problem| problem.sentence(source))?;
    Ok((expression, checker.kept()))
}

/// What comes of an expression for worker 1, as JSON.
fn ask(source: &str) -> Result<String, String> {
    let (expression, kept) = compile(source)?;
    let pod = Pod { role: 1, index: 1 };
    let value = expression.evaluate(&subject(kept), Some(pod), &mut Meter::new(10_000));
    let mut text = String::new();
    let value = value.map_err(|fault| fault.to_string())?;
    json::write(&value, &mut text, &mut Meter::new(10_000)).unwrap();
    Ok(text)
}

#[rstest]
#[case("job.name + '/' + job.namespace", r#""mnist/team""#)]
#[case("job.replicas", "4")]
#[case("job.hosts[0]", r#""mnist-ps-0.mnist.team""#)]
#[case("job.hosts[3]", r#""mnist-worker-2.mnist.team""#)]
#[case("job.master == job.hosts[0]", "true")]
#[case("hosts('worker')[replica.index] == replica.host", "true")]
#[case("hosts('wor' + 'ker').size()", "3")]
#[case("replica.rank", "2")]
#[case("replica.role", r#""worker""#)]
#[case("replicas('ps') + replicas('worker')", "4")]
#[case("params.port % 1000", "91")]
#[case("job.roles.map(r, r.name + string(r.replicas)).join('-')", r#""ps1-worker3""#)]
#[case("json({'b': [1, true], 'a': {}})", r#""{\"a\":{},\"b\":[1,true]}""#)]
#[case(
    "job.roles.transformMapEntry(i, r, {r.name: r.hosts.map(h, h + ':' + string(i))}).ps",
    r#"["mnist-ps-0.mnist.team:0"]"#
)]
#[case(
    "job.roles.exists(r, r.name == 'ps') && !job.roles.all(r, r.replicas > 1)",
    "true"
)]
#[case("job.hosts.filter(h, h != replica.host).size()", "3")]
#[case("[3, 1, 2].map(x, x > 1, x * 2)", "[6,4]")]
#[case("'ps' in job.roles.map(r, r.name) ? 1 : 2", "1")]
#[case("int('-7') / 2", "-3")]
#[case("{'a': 1}['a'] + {'a': 1}.a", "2")]
#[case("'é'.size() + size('aé')", "3")]
#[case("\"\"\"a\n'b'\"\"\" + r'\\d'", r#""a\n'b'\\d""#)]
#[case("'a'.upperAscii() + 'B'.lowerAscii()", r#""Ab""#)]
#[case("1 / 0 > 1 || true", "true")]
#[case("false && 1 / 0 > 1", "false")]
#[case("-9223372036854775808 < 0 // a comment", "true")]
fn expressions_mean_what_the_documentation_says(#[case] source: &str, #[case] expected: &str) {
    assert_eq!(ask(source).as_deref(), Ok(expected));
}

/// Worker 1 of three has left.
#[rstest]
#[case("job.replicas", "3")]
#[case("replicas('worker') + job.roles[1].replicas", "4")]
#[case(
    "job.hosts",
    r#"["mnist-ps-0.mnist.team","mnist-worker-0.mnist.team","mnist-worker-2.mnist.team"]"#
)]
#[case(
    "job.hosts.map(h, h) == job.hosts && job.roles[1].hosts == hosts('worker')",
    "true"
)]
#[case("job.hosts[2]", r#""mnist-worker-2.mnist.team""#)]
#[case("job.hosts[replica.rank] == replica.host", "true")]
#[case("hosts('worker')[1] == replica.host", "true")]
#[case("[replica.rank, replica.index]", "[2,2]")]
fn pods_that_have_left_are_in_no_list(#[case] source: &str, #[case] expected: &str) {
    let (expression, kept) = compile(source).unwrap();
    let roles = vec![
        RoleFacts::new("ps", &Members::first(1), "mnist-ps-{}".to_owned()),
        RoleFacts::new("worker", &Members::listed([0, 2]), "mnist-worker-{}".to_owned()),
    ];
    let subject = Subject::new(names(), roles, Vec::new(), kept);
    let pod = Pod { role: 1, index: 2 };
    let value = expression.evaluate(&subject, Some(pod), &mut Meter::new(10_000));
    let mut text = String::new();
    json::write(&value.unwrap(), &mut text, &mut Meter::new(10_000)).unwrap();
    assert_eq!(text, expected);
}

#[rstest]
#[case("", "column 1: the expression ends too early")]
#[case("1 +", "column 4: the expression ends too early")]
#[case("job", "column 1: job is no value: write job. and one of its fields")]
#[case("jop.name", "column 1: there is no jop: there are job, replica, params")]
#[case(
    "job.nam",
    "column 1: job has no field \"nam\": it has name, namespace, roles, hosts, replicas, master"
)]
#[case("params.prt", "column 1: params has no field \"prt\": it has port, mode")]
#[case(
    "hosts('sever')",
    "column 1: there is no role \"sever\": spec.roles has ps, worker"
)]
#[case(
    "job.name + 1",
    "column 1: + can't be used with a string and a number: write string(...) around what is no string"
)]
#[case("'a' == 1", "column 1: == can't be used with a string and a number")]
#[case(
    "job.replicas ? 1 : 2",
    "column 1: this is a number, and a boolean is expected"
)]
#[case(
    "job.hosts.join()",
    "column 1: join: it is written list.join(separator), of a list of strings"
)]
#[case(
    "[1].join(',')",
    "column 1: join: a list and a string was given; it is written list.join(separator), of a list of strings"
)]
#[case(
    "json(job.roles)",
    "column 1: json: a list was given; it is written json(value)"
)]
#[case(
    "env('HOME')",
    "column 1: there is no function env: there are hosts, replicas, json, string, int, size, join, startsWith, endsWith, contains, lowerAscii, upperAscii, and map, filter, all, exists, exists_one and transformMapEntry of lists"
)]
#[case(
    "job.hosts.map(job, 1)",
    "column 15: job has a meaning already: give the variable another name"
)]
#[case(
    "job.hosts.map(1, 1)",
    "column 15: the name of the variable of the loop is expected here"
)]
#[case(
    "job.name.map(c, c)",
    "column 1: map goes through a list, and this is a string"
)]
#[case(
    "job.hosts.map(h, job.hosts.map(i, i + h))",
    "column 18: a loop inside of a loop takes too long: only a loop over roles may have one inside"
)]
#[case(
    "job.roles.map(r, job.roles.map(s, s.hosts.map(h, h)))",
    "column 35: a loop inside of a loop takes too long: only a loop over roles may have one inside"
)]
#[case("1.5", "column 1: there are only whole numbers of at most 64 bits")]
#[case(
    "99999999999999999999",
    "column 1: there are only whole numbers of at most 64 bits"
)]
#[case("9223372036854775808", "column 1: the number has more than 64 bits")]
#[case("'a", "column 1: the text has no closing '")]
#[case("'\\q'", "column 2: this escape sequence is not known")]
#[case("Foo{a: 1}", "column 4: { is not expected here: the expression has ended")]
#[case("a @ b", "column 3: @ means nothing in CEL")]
#[case(
    "null",
    "column 1: there is no null here: every value is there, as an empty string or list if need be"
)]
#[case("while", "column 1: while is no name: CEL keeps this word for itself")]
#[case("{1: 2}", "column 2: this is a number, and a string is expected")]
#[case(
    "1 +\n  'a'",
    "column 1: + can't be used with a number and a string: write string(...) around what is no string"
)]
#[case(
    "true &&\n  x",
    "line 2, column 3: there is no x: there are job, replica, params"
)]
fn what_is_wrong_is_said_with_its_place(#[case] source: &str, #[case] expected: &str) {
    assert_eq!(ask(source), Err(expected.to_owned()));
}

#[rstest]
#[case("job.hosts[4]", "there is no item 4: the list has 4")]
#[case("job.hosts[-1]", "there is no item -1: the list has 4")]
#[case("hosts('ps')[replica.index]", "there is no item 1: the list has 1")]
#[case("[1][replica.index]", "there is no item 1: the list has 1")]
#[case("{'a': 1}[params.mode]", "the map has no \"sync\"")]
#[case("1 / (replica.index - 1)", "a number is divided by zero")]
#[case("9223372036854775807 + replica.index", "a number has more than 64 bits")]
#[case("int(params.mode)", "int(\"sync\"): this is no whole number")]
#[case("{'a': 1, 'a': 2}", "a key is twice in a map")]
fn what_only_some_jobs_show_is_said_of_them(#[case] source: &str, #[case] expected: &str) {
    assert_eq!(ask(source), Err(expected.to_owned()));
}

#[test]
fn nothing_that_is_too_deep_is_walked() {
    for source in [
        "(".repeat(5000),
        "!".repeat(5000),
        "1".to_owned() + &"+1".repeat(5000),
        "[".repeat(5000),
        "job".to_owned() + &".a".repeat(5000),
    ] {
        assert!(ask(&source).is_err());
    }
    let nested = format!("{}1{}", "(".repeat(98), ")".repeat(98));
    assert_eq!(ask(&nested).as_deref(), Ok("1"));
}

/// A text that doubles, or a list, thirty times.
fn doubled(seed: &str, twice: &str) -> String {
    format!("{seed}{}", format!(".map(x, {twice})").repeat(30))
}

/// What is short to write and long to do. A program that did it first and counted then would take
/// seconds, or all memory.
#[rstest]
#[case::lists_of_all_for_all("job.hosts.map(h, json(job.hosts)).join('')".to_owned())]
#[case::text(doubled("['a']", "x + x"))]
#[case::list(doubled("[[1]]", "x + x"))]
#[case::json_of_a_tree(format!("json({})", doubled("[1]", "[x, x]")))]
#[case::json_of_a_tree_of_maps(format!("json({{'a': {}}})", doubled("[1]", "{'a': x, 'b': x}")))]
#[case::equal_trees(format!("{} == {}", doubled("[1]", "[x, x]"), doubled("[1]", "[x, x]")))]
#[case::different_trees(format!("{} != {}", doubled("[1]", "[x, x]"), doubled("[1]", "[x, x]")))]
#[case::a_tree_in_a_list(format!("{} in [{}]", doubled("[1]", "[x, x]"), doubled("[1]", "[x, x]")))]
#[case::trees_of_maps(format!("{} == {}", doubled("[1]", "{'a': x, 'b': x}"), doubled("[1]", "{'a': x, 'b': x}")))]
#[case::join("job.hosts.map(h, job.hosts.join('')).join('')".to_owned())]
#[case::upper("job.hosts.map(h, job.hosts.join('')).map(x, x.upperAscii()).size()".to_owned())]
#[case::lower("job.hosts.map(h, job.hosts.join('')).map(x, x.lowerAscii()).size()".to_owned())]
#[case::size("job.hosts.map(h, job.hosts.join('')).map(x, x.size())".to_owned())]
#[case::starts("job.hosts.map(h, job.hosts.join('')).map(x, x.startsWith(job.hosts.join('')))".to_owned())]
#[case::ends("job.hosts.map(h, job.hosts.join('')).map(x, x.endsWith(job.hosts.join('')))".to_owned())]
#[case::contains("job.hosts.map(h, job.hosts.join('')).map(x, 'a'.contains(x))".to_owned())]
#[case::less("job.hosts.map(h, job.hosts.join('')).map(x, x < job.hosts.join('') + 'a')".to_owned())]
#[case::number("job.hosts.map(h, job.hosts.join('')).exists(x, int(x) == 1)".to_owned())]
#[case::keys("job.hosts.map(h, job.hosts.join('')).map(x, {x: 1})".to_owned())]
#[case::entries("job.hosts.map(h, job.hosts.join('')).filter(x, x in {job.hosts.join(''): 1})".to_owned())]
fn nothing_takes_long(#[case] source: String) {
    let names = Names {
        job: "m",
        namespace: "t",
        domain: "d".to_owned(),
        master: None,
    };
    let roles = vec![RoleFacts::new(
        "worker",
        &Members::first(2_000),
        "m-worker-{}".to_owned(),
    )];
    let (expression, kept) = compile(&source).unwrap();
    let subject = Subject::new(names, roles, Vec::new(), kept);
    let fault = expression
        .evaluate(&subject, None, &mut Meter::new(100_000))
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "it takes too long for a job of this size: simplify it, or use fewer pods"
    );
}

#[test]
fn a_fault_names_a_long_text_by_its_beginning() {
    let fault = ask(&format!("int('{}')", "é".repeat(1000))).unwrap_err();
    assert!(
        fault.starts_with("int(\"ééé") && fault.chars().count() < 120,
        "{fault}"
    );
}

#[test]
fn what_all_pods_share_is_computed_once() {
    let (expression, kept) =
        compile("json({'hosts': job.hosts.map(h, h + ':1'), 'rank': replica.rank})").unwrap();
    assert_eq!(kept, 1, "the list as JSON");
    let subject = subject(kept);
    let mut spent = (0..3).map(|index| {
        let mut meter = Meter::new(1_000);
        let pod = Pod { role: 1, index };
        expression.evaluate(&subject, Some(pod), &mut meter).unwrap();
        1_000 - meter.left
    });
    let (first, second, third) = (
        spent.next().unwrap(),
        spent.next().unwrap(),
        spent.next().unwrap(),
    );
    assert!(first > second, "{first} steps, then {second}");
    assert_eq!(second, third);
}

/// What the crate `cel` makes of an expression. It does not know our functions.
fn ask_cel(source: &str) -> Option<cel::Value> {
    let program = cel::Program::compile(source).ok()?;
    let mut context = cel::Context::default();
    let job = HashMap::from([
        ("name", cel::Value::from("mnist")),
        ("replicas", cel::Value::from(4)),
    ]);
    context.add_variable_from_value("job", job);
    let hosts = vec!["a", "b", "c"];
    context.add_variable_from_value("params", HashMap::from([("port", 9091)]));
    context.add_variable_from_value("hosts", hosts);
    program.execute(&context).ok()
}

fn same(value: &Value, other: &cel::Value) -> bool {
    match (value, other) {
        (Value::Bool(one), cel::Value::Bool(other)) => one == other,
        (Value::Int(one), cel::Value::Int(other)) => one == other,
        (Value::Text(one), cel::Value::String(other)) => **one == ***other,
        (Value::List(one), cel::Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| same(one, other))
        }
        _ => false,
    }
}

fn number() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (-20_i64..20).prop_map(|n| n.to_string()),
        Just("job.replicas".to_owned()),
        Just("params.port".to_owned()),
        Just("size([1, 2])".to_owned()),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        let operator = prop_oneof![Just("+"), Just("-"), Just("*"), Just("/"), Just("%")];
        let size = inner.clone();
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} < {b} ? {a} : {c})")),
            size.prop_map(|a| format!("[{a}, 1].map(x, x + 1).filter(y, y > 3).size()")),
        ]
    })
}

fn boolean() -> impl Strategy<Value = String> {
    let compare = prop_oneof![
        Just("=="),
        Just("!="),
        Just("<"),
        Just("<="),
        Just(">"),
        Just(">=")
    ];
    let leaf = prop_oneof![
        (number(), compare.clone(), number()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        (text(), compare, text()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        (number(), number()).prop_map(|(a, b)| format!("{a} in [{b}, 4]")),
        (text(), text()).prop_map(|(a, b)| format!("({a}).startsWith({b})")),
        number().prop_map(|a| format!("[1, {a}].all(x, x > 0)")),
        number().prop_map(|a| format!("[1, {a}].exists(x, x == 1)")),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} && {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} || {b})")),
            inner.prop_map(|a| format!("!({a})")),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-c]{0,2}".prop_map(|text| format!("'{text}'")),
        Just(r#""\u00e9\n\x41""#.to_owned()),
        Just("job.name".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} + {b}")),
            number().prop_map(|a| format!("string({a})")),
            inner.prop_map(|a| format!("({a})")),
        ]
    })
}

proptest! {
    /// What we make of an expression is what CEL makes of it.
    #[test]
    fn results_are_those_of_cel(source in prop_oneof![number(), boolean(), text()]) {
        let (expression, kept) = compile(&source).map_err(|why| TestCaseError::fail(format!("{source}: {why}")))?;
        let ours = expression.evaluate(&subject(kept), None, &mut Meter::new(100_000)).ok();
        match (&ours, ask_cel(&source)) {
            (Some(ours), Some(theirs)) => prop_assert!(same(ours, &theirs), "{source}: {ours:?}, {theirs:?}"),
            (ours, theirs) => prop_assert_eq!(ours.is_some(), theirs.is_some(), "{}: {:?}, {:?}", source, ours, theirs),
        }
    }

    /// Whatever is written, nothing panics.
    #[test]
    fn anything_can_be_read(source in "[ a-z0-9.,:?+*/%<>=!&|()\\[\\]{}'\"\\\\\n-]{0,60}") {
        drop(ask(&source));
    }

    #[test]
    fn any_sequence_of_words_can_be_read(words in prop::collection::vec(prop_oneof![
        Just("job"), Just("."), Just("hosts"), Just("("), Just(")"), Just("["), Just("]"), Just("{"), Just("}"),
        Just("'a'"), Just("1"), Just("map"), Just("x"), Just(","), Just("replica.index"), Just("roles"), Just(":"),
        Just("+"), Just("?"), Just("-"), Just("params"), Just("json"), Just("filter"), Just("true"), Just("in"),
    ], 0..20)) {
        drop(ask(&words.concat()));
        drop(ask(&words.join(" ")));
    }
}
