//! Labs whose operator serves kinds of other operators.

use serde_json::Value;

use super::Lab;
use crate::images;
use crate::operator::Operator;

const SERVED: &str = "--compat=all";

impl Lab {
    /// A new namespace in a cluster that knows kinds of other operators, and an operator that
    /// serves them and has an agent.
    pub fn with_kinds(name: &str) -> (Self, Operator) {
        Self::with_kinds_and_profile(name, "restricted")
    }

    /// The same, in a namespace that admits pods of a profile.
    pub fn with_kinds_and_profile(name: &str, profile: &str) -> (Self, Operator) {
        let lab = Self::with_profile(name, profile).knowing_kinds();
        let start = lab
            .backend
            .operator_with(&["--agent-image", images::AGENT, SERVED]);
        let operator = Operator::start(&start, &lab.namespace);
        (lab, operator)
    }

    /// The same, with an operator that tells the agent about its job, as [`Lab::with_observer`] has
    /// it.
    pub fn with_kinds_and_observer(name: &str) -> (Self, Operator, Value) {
        let lab = Self::new(name).knowing_kinds();
        let (operator, aliases) = lab.start_observer(&[SERVED]);
        (lab, operator, aliases)
    }

    /// The same, in a namespace that admits manifests which say nothing of security, with an
    /// operator that has launchers run the scripts of requests, as [`Lab::with_scripts`] has it.
    pub fn with_kinds_and_scripts(name: &str) -> (Self, Operator, Value) {
        let lab = Self::with_profile(name, "baseline").knowing_kinds();
        let (operator, aliases) = lab.start_observer(&[SERVED, "--scripts=unreviewed"]);
        (lab, operator, aliases)
    }

    /// The same, with an operator that answers like AresOperator's observer, as
    /// [`Lab::with_ares_observer`] has it.
    pub fn with_kinds_and_ares_observer(name: &str) -> (Self, Operator, Vec<String>) {
        let lab = Self::new(name).knowing_kinds();
        let start = lab
            .backend
            .operator_with(&[SERVED, "--ares-observer-address=0.0.0.0:8081"]);
        let operator = Operator::start(&start, &lab.namespace);
        let addresses = lab.backend.own_addresses();
        (lab, operator, addresses)
    }

    fn knowing_kinds(self) -> Self {
        for kind in trainyard_compat::served() {
            self.define(kind.definition());
            let all = format!("{}.{}", kind.kind(), kind.group());
            self.until("the kind is served", || self.try_get(&all).map(drop));
        }
        self
    }
}
