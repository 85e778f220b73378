//! Labs whose operator serves kinds of other operators.

use serde_json::Value;

use super::Lab;
use crate::images;
use crate::operator::Operator;

const SERVED: &str = "--compat=kubeflow-mpi,bdap-mpi,dl";

impl Lab {
    /// A new namespace in a cluster that knows kinds of other operators, and an operator that
    /// serves them and has an agent.
    pub fn with_kinds(name: &str) -> (Self, Operator) {
        let lab = Self::knowing_kinds(name);
        let start = lab
            .backend
            .operator_with(&["--agent-image", images::AGENT, SERVED]);
        let operator = Operator::start(&start, &lab.namespace);
        (lab, operator)
    }

    /// The same, with an operator that tells the agent about its job, as [`Lab::with_observer`] has
    /// it.
    pub fn with_kinds_and_observer(name: &str) -> (Self, Operator, Value) {
        let lab = Self::knowing_kinds(name);
        let (operator, aliases) = lab.start_observer(&[SERVED]);
        (lab, operator, aliases)
    }

    fn knowing_kinds(name: &str) -> Self {
        let lab = Self::new(name);
        for kind in trainyard_compat::served() {
            lab.define(kind.definition());
            let all = format!("{}.{}", kind.kind(), kind.group());
            lab.until("the kind is served", || lab.try_get(&all).map(drop));
        }
        lab
    }
}
