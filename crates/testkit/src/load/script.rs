//! What pods are to do.

use std::time::Duration;

use super::status::PodTransition;

/// What pods do, by their names.
///
/// A pattern is a name in which `*` stands for anything.
#[derive(Clone, Debug, Default)]
pub struct Script {
    idle: bool,
    start_after: Duration,
    succeed_after: Option<Duration>,
    nodes: Vec<String>,
    /// Names of pods, and the node that the first pod of such a name is bound to.
    places: Vec<(String, String)>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: String,
    transition: PodTransition,
    after: Duration,
    each: bool,
}

impl Script {
    /// Every pod is started at once and never ends.
    pub fn run() -> Self {
        Self::default()
    }

    /// No pod does anything by itself.
    pub fn idle() -> Self {
        Self {
            idle: true,
            ..Self::default()
        }
    }

    /// Pods are bound to these nodes, in turn, before they run; a deleted pod is then
    /// removed by the player, as by a kubelet.
    #[must_use]
    pub fn on_nodes(mut self, nodes: Vec<String>) -> Self {
        self.nodes = nodes;
        self
    }

    /// The first pod of every matching name is bound to this node, whatever other nodes there are.
    #[must_use]
    pub fn first_on_node(mut self, pattern: impl Into<String>, node: impl Into<String>) -> Self {
        self.places.push((pattern.into(), node.into()));
        self
    }

    /// Pods run only some time after they were created.
    #[must_use]
    pub fn start_after(mut self, delay: Duration) -> Self {
        self.start_after = delay;
        self
    }

    /// Pods end well when they have run for so long.
    #[must_use]
    pub fn succeed_after(mut self, delay: Duration) -> Self {
        self.succeed_after = Some(delay);
        self
    }

    /// The first pod of every matching name fails with this code as soon as it runs; its
    /// replacement does not.
    #[must_use]
    pub fn fail(self, pattern: impl Into<String>, code: i32) -> Self {
        self.rule(pattern, PodTransition::Fail(code), Duration::ZERO, false)
    }

    /// As [`Script::fail`], and so do its replacements.
    #[must_use]
    pub fn fail_each(self, pattern: impl Into<String>, code: i32) -> Self {
        self.rule(pattern, PodTransition::Fail(code), Duration::ZERO, true)
    }

    /// Pods of matching names end well when they have run for so long, whatever else the script
    /// says of all pods.
    #[must_use]
    pub fn succeed(self, pattern: impl Into<String>, after: Duration) -> Self {
        self.rule(pattern, PodTransition::Succeed, after, true)
    }

    fn rule(
        mut self,
        pattern: impl Into<String>,
        transition: PodTransition,
        after: Duration,
        each: bool,
    ) -> Self {
        self.rules.push(Rule {
            pattern: pattern.into(),
            transition,
            after,
            each,
        });
        self
    }

    /// When a pod starts to run.
    pub(super) fn start(&self) -> Option<Duration> {
        (!self.idle).then_some(self.start_after)
    }

    /// The node that a pod is bound to. `earlier`: how many pods of this name there were before;
    /// `number`: how many pods.
    pub(super) fn node(&self, name: &str, earlier: u32, number: usize) -> Option<&str> {
        let applies = |(pattern, _): &&(String, String)| earlier == 0 && matches(pattern, name);
        if let Some((_, node)) = self.places.iter().find(applies) {
            return Some(node);
        }
        let position = number.checked_rem(self.nodes.len())?;
        self.nodes.get(position).map(String::as_str)
    }

    /// How a pod that runs ends, and after how long. `earlier`: how many pods of this name there
    /// were before.
    pub(super) fn end(&self, name: &str, earlier: u32) -> Option<(Duration, PodTransition)> {
        let applies = |rule: &&Rule| (rule.each || earlier == 0) && matches(&rule.pattern, name);
        let rule = self
            .rules
            .iter()
            .find(applies)
            .map(|rule| (rule.after, rule.transition));
        rule.or_else(|| self.succeed_after.map(|after| (after, PodTransition::Succeed)))
    }
}

/// Whether a name matches a pattern.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return name.ends_with(part);
        }
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("a-worker-0", "a-worker-0", true),
            ("a-worker-0", "a-worker-01", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a-worker-0", true),
            ("*-0", "a-worker-0", true),
            ("*-0", "a-worker-1", false),
            ("a-*-0", "a-worker-0", true),
            ("a-*-0", "a-0", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("a*b*c", "abcbc", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_pod_of_a_name_has_its_node_and_the_others_take_turns() {
        let script = Script::run()
            .on_nodes(vec!["a".to_owned(), "b".to_owned()])
            .first_on_node("*-1", "c");
        let node = |name, earlier, number| script.node(name, earlier, number);
        assert_eq!(node("j-0", 0, 0), Some("a"));
        assert_eq!(node("j-1", 0, 1), Some("c"));
        assert_eq!(node("j-1", 1, 3), Some("b"));
        assert_eq!(Script::run().node("j-1", 0, 0), None);
    }

    #[test]
    fn only_the_first_pod_of_a_name_fails_unless_each_does() {
        let script = Script::run()
            .fail("*-0", 3)
            .fail_each("*-1", 4)
            .succeed_after(Duration::from_secs(2));
        let well = Some((Duration::from_secs(2), PodTransition::Succeed));
        assert_eq!(
            script.end("a-0", 0),
            Some((Duration::ZERO, PodTransition::Fail(3)))
        );
        assert_eq!(script.end("a-0", 1), well);
        assert_eq!(
            script.end("a-1", 5),
            Some((Duration::ZERO, PodTransition::Fail(4)))
        );
        assert_eq!(script.end("a-2", 0), well);
        assert_eq!(Script::run().end("a-2", 0), None);
        assert_eq!(Script::idle().start(), None);
    }
}
