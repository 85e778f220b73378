//! What an installation that answers like AresOperator's observer consists of.

use std::fs;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::install::find;
use super::variants::VARIANTS;
use super::{id, list, objects, printed, repository, text};

fn operator(objects: &[Value]) -> &Value {
    &find(objects, "Deployment", "trainyard-operator")["spec"]["template"]["spec"]["containers"][0]
}

/// It has no authentication: nobody gets it who did not ask for it.
#[test]
fn it_is_not_there_unless_asked_for() {
    for line in VARIANTS.iter().filter(|line| !line.contains("--ares-observer")) {
        assert!(
            !json!(objects(line)).to_string().contains("ares-observer"),
            "{line}"
        );
    }
}

#[test]
fn it_adds_a_port_and_a_service_and_no_right() {
    for more in [
        "",
        " --no-agent",
        " --no-webhooks --no-agent --watch-namespace team-a",
    ] {
        let plain = objects(&format!("install{more}"));
        let served = objects(&format!("install --ares-observer{more}"));
        let changed: Vec<_> = served
            .iter()
            .filter(|object| !plain.contains(object))
            .map(id)
            .collect();
        assert_eq!(
            changed,
            [
                ("Deployment", "trainyard-system", "trainyard-operator"),
                ("Service", "trainyard-system", "ares-observer"),
            ],
            "{more}"
        );
        let port = json!({"name": "ares-observer", "containerPort": 8081, "protocol": "TCP"});
        let container = operator(&served);
        assert!(list(container, "/ports").contains(&port), "{container:#}");
        assert!(list(container, "/args").contains(&json!("--ares-observer-address=0.0.0.0:8081")));
        let service = &find(&served, "Service", "ares-observer")["spec"];
        assert_eq!(service.get("type"), None, "nobody outside of the cluster");
        assert_eq!(
            service["ports"],
            json!([{"name": "ares-observer", "port": 80, "targetPort": "ares-observer", "protocol": "TCP"}])
        );
        let labels = &find(&served, "Deployment", "trainyard-operator")["spec"]["selector"]["matchLabels"];
        assert_eq!(&service["selector"], labels);
    }
}

/// Their programs are told `ares-observer.ares`.
#[test]
fn it_can_be_where_their_programs_look_for_it() {
    let objects = objects("install --ares-observer --namespace ares");
    assert_eq!(
        text(find(&objects, "Service", "ares-observer"), "/metadata/namespace"),
        "ares"
    );
}

/// One of that name may be AresOperator's own.
#[test]
fn a_service_of_that_name_is_deleted_only_if_it_was_asked_for() {
    let line = "uninstall --namespace ares";
    assert!(!printed(line).contains("ares-observer"));
    let deleted = objects(&format!("{line} --ares-observer"));
    assert_eq!(
        text(find(&deleted, "Service", "ares-observer"), "/metadata/namespace"),
        "ares"
    );
}

#[test]
fn it_is_said_that_everybody_can_ask() {
    for command in ["install", "operator"] {
        let help = printed(&format!("{command} --help"));
        let words: Vec<&str> = help.split_whitespace().collect();
        let said = words.join(" ");
        assert!(
            said.contains("It has no TLS and no authentication"),
            "{command}: {help}"
        );
    }
}

/// The policy in the documentation closes that port and no other.
#[test]
fn the_documented_network_policy_fits_the_installation() {
    let page = fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let policy = blocks
        .find(|block| block.contains("kind: NetworkPolicy"))
        .unwrap();
    let policy: Value = serde_saphyr::from_str(policy).unwrap();
    let typed: NetworkPolicy = serde_json::from_value(policy.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(typed).unwrap(),
        policy,
        "nothing is misspelt"
    );

    let objects = objects("install --ares-observer");
    let deployment = find(&objects, "Deployment", "trainyard-operator");
    assert_eq!(
        policy["metadata"]["namespace"],
        deployment["metadata"]["namespace"]
    );
    assert_eq!(
        policy["spec"]["podSelector"], deployment["spec"]["selector"],
        "all replicas"
    );
    let ports = |rule: &Value| -> Vec<Value> {
        let ports = list(rule, "/ports").iter();
        ports.map(|port| port["port"].clone()).collect()
    };
    let rules = list(&policy, "/spec/ingress");
    let (open, limited): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.get("from").is_none());
    let open: Vec<Value> = open.into_iter().flat_map(&ports).collect();
    let limited: Vec<Value> = limited.into_iter().flat_map(&ports).collect();
    assert_eq!(limited, [8081]);
    let mut all: Vec<&Value> = open.iter().chain(&limited).collect();
    let served = list(operator(&objects), "/ports").iter();
    let mut served: Vec<&Value> = served.map(|port| &port["containerPort"]).collect();
    all.sort_by_key(|port| port.as_u64());
    served.sort_by_key(|port| port.as_u64());
    assert_eq!(all, served);
}
