//! How the operator is told what to do: flags, and for each an environment variable.

use std::net::SocketAddr;

use clap::builder::RangedU64ValueParser;
use trainyard_api::validate::{label_key_problem, label_value_problem, object_name_problem};
use trainyard_core::foreign::ForeignKind;
use trainyard_core::notice::{NoticeRules, TaintRule};
use trainyard_core::view::{Settings, SpotLabel};

use crate::agent;

/// Options of the operator.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags, each of which is given or not"
)]
pub struct Options {
    /// Look only at this namespace. May be given several times, or as a list with commas; without
    /// it, all namespaces.
    #[arg(
        long = "watch-namespace",
        env = "TRAINYARD_WATCH_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = namespace_or_nothing
    )]
    pub watch_namespaces: Vec<String>,

    /// Where /healthz, /readyz and /metrics are served.
    #[arg(
        long,
        env = "TRAINYARD_HTTP_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub http_address: SocketAddr,

    /// Several replicas run: only the one that holds the lease writes.
    #[arg(long, env = "TRAINYARD_LEADER_ELECT", value_parser = clap::builder::BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub leader_elect: bool,

    /// The name of the lease.
    #[arg(
        long,
        env = "TRAINYARD_LEASE_NAME",
        value_name = "NAME",
        default_value = "trainyard-operator"
    )]
    pub lease_name: String,

    /// Serve the webhooks that default and check jobs, with certificates that the operator makes
    /// itself.
    #[arg(long, env = "TRAINYARD_WEBHOOKS", value_parser = clap::builder::BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub webhooks: bool,

    /// Where the webhooks are served.
    #[arg(
        long,
        env = "TRAINYARD_WEBHOOK_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9443"
    )]
    pub webhook_address: SocketAddr,

    /// Serve the observer, and put the agent into pods that wait for other roles of their job:
    /// there it asks the observer and lets their programs start. Without it, such pods are created
    /// only when what they wait for has come.
    #[arg(long, env = "TRAINYARD_SERVE_OBSERVER", value_parser = clap::builder::BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub observer: bool,

    /// The image that has the agent, which is put into pods that need it. Without it, the one that
    /// the operator's own pod was started from, if it serves the observer; otherwise there is no
    /// agent, and jobs that need it are not accepted.
    #[arg(long, env = "TRAINYARD_AGENT_IMAGE", value_name = "IMAGE")]
    pub agent_image: Option<String>,

    /// Give jobs that ask for it (`framework.mpi.attach: Exec`) a right to run commands in their
    /// own workers through the API server. The operator can give only what it has: it needs
    /// `pods/exec` itself, and rights on service accounts, Roles and their bindings, as `trainyard
    /// install --exec` gives them. Without it such jobs are not accepted.
    #[arg(long, env = "TRAINYARD_ALLOW_EXEC", value_parser = clap::builder::BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub allow_exec: bool,

    /// Whether ScaleIns and ScaleOuts may have scripts, which launchers run. `reviewed`: who asks
    /// for one must have the right to create `pods/exec`, which the webhooks check; it needs
    /// webhooks that are never passed over for such requests, as `trainyard install` configures
    /// them. `unreviewed`: whoever may create such a request can run programs in launchers.
    #[arg(long, env = "TRAINYARD_SCRIPTS_ALLOWED", value_enum, default_value_t)]
    pub scripts: Scripts,

    /// Where the observer is served. Pods reach it through the Service trainyard-observer of the
    /// operator's namespace.
    #[arg(
        long,
        env = "TRAINYARD_OBSERVER_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9444"
    )]
    pub observer_address: SocketAddr,

    /// Serve what the observer of AresOperator serves, too, and where: `/cache/ping` and
    /// `/cache/keys/{namespace}.{job}`, for programs that were written to ask that one. It has no
    /// TLS and no authentication, as there: whoever reaches this address is told the phases and the
    /// addresses of any job that the operator watches. Without this option it is not served.
    #[arg(long, env = "TRAINYARD_ARES_OBSERVER_ADDRESS", value_name = "ADDRESS")]
    pub ares_observer_address: Option<SocketAddr>,

    /// The operator's own namespace, for the lease and the certificates. Without it, that of the
    /// kubeconfig or of the pod.
    #[arg(long, env = "TRAINYARD_NAMESPACE", value_name = "NAME", value_parser = namespace_name)]
    pub namespace: Option<String>,

    /// The cluster's DNS domain.
    #[arg(
        long,
        env = "TRAINYARD_CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local"
    )]
    pub cluster_domain: String,

    /// Serve kinds of other operators too, as they are: kubeflow-mpi, bdap-mpi, dl, ares, or all.
    /// May be given several times, or as a list with commas. One that the cluster does not know yet
    /// is served as soon as it does.
    #[arg(
        long,
        env = "TRAINYARD_COMPAT",
        value_name = "KIND",
        value_delimiter = ',',
        require_equals = true
    )]
    pub compat: Vec<String>,

    /// A taint by which nodes say that they are about to go, besides those of common autoscalers
    /// and providers, and how many seconds pods have from then on; without SECONDS, as long as
    /// their job says. It counts with the effects `NoSchedule` and `NoExecute`. May be given
    /// several times, or as a list with commas.
    #[arg(
        long = "node-notice",
        env = "TRAINYARD_NODE_NOTICE",
        value_name = "KEY[=SECONDS]",
        value_delimiter = ',',
        value_parser = node_notice
    )]
    pub node_notices: Vec<TaintRule>,

    /// The annotation in which a node that is cordoned or has such a taint says when it goes, as a
    /// time in RFC 3339. May be given several times, or as a list with commas: the earliest time
    /// holds.
    #[arg(
        long = "node-notice-annotation",
        env = "TRAINYARD_NODE_NOTICE_ANNOTATION",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = label_key_or_nothing,
        default_value = "trainyard.dev/leave-by"
    )]
    pub node_notice_annotations: Vec<String>,

    /// A label of nodes that may be taken away at any time, such as spot machines. Pods that others
    /// need (rank 0, launchers, parameter servers, schedulers) are put elsewhere if there is room.
    /// Pods that exist are not moved. May be given several times, or as a list with commas.
    #[arg(
        long = "spot-label",
        env = "TRAINYARD_SPOT_LABEL",
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        value_parser = spot_label
    )]
    pub spot_labels: Vec<SpotLabel>,

    /// How many jobs are worked on at once. Requests to the server are limited apart from this.
    #[arg(
        long,
        env = "TRAINYARD_CONCURRENCY",
        value_name = "NUMBER",
        default_value_t = 256,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    pub concurrency: usize,
}

impl Options {
    /// The settings that decisions depend on.
    pub fn settings(&self) -> Settings {
        Settings {
            cluster_domain: self.cluster_domain.clone(),
            agent: self.agent_image.as_deref().map(agent::agent),
            allows_exec: self.allow_exec,
            runs_scripts: self.scripts != Scripts::Off,
            waits_inside: true,
            notices: self.notices(),
            spot_labels: {
                let labels = self.spot_labels.iter();
                labels.filter(|label| !label.key.is_empty()).cloned().collect()
            },
        }
    }

    /// By what nodes say that they are about to go. A taint that is known is given other seconds.
    fn notices(&self) -> NoticeRules {
        let mut taints = NoticeRules::default().taints;
        for rule in self.node_notices.iter().filter(|rule| !rule.key.is_empty()) {
            taints.retain(|known| known.key != rule.key);
            taints.push(rule.clone());
        }
        let mut annotations = self.node_notice_annotations.clone();
        annotations.retain(|name| !name.is_empty());
        NoticeRules { taints, annotations }
    }

    /// Whether requests may have scripts.
    pub fn scripts(&self) -> Result<Scripts, UnreviewedScripts> {
        match self.scripts {
            Scripts::Reviewed if !self.webhooks => Err(UnreviewedScripts),
            scripts => Ok(scripts),
        }
    }

    /// The kinds of other operators to serve, each once, of those that are known.
    pub fn kinds(
        &self,
        known: &[&'static dyn ForeignKind],
    ) -> Result<Vec<&'static dyn ForeignKind>, UnknownKind> {
        // A variable that is set to nothing is as good as one that is not set.
        let wanted = self.compat.iter().map(|flag| flag.trim());
        let wanted: Vec<&str> = wanted.filter(|flag| !flag.is_empty()).collect();
        let flags = compat_flags(known);
        match wanted.iter().find(|flag| !flags.contains(*flag)) {
            Some(unknown) => Err(UnknownKind {
                wanted: (*unknown).to_owned(),
                known: flags,
            }),
            None => Ok(select_kinds(known, &wanted)),
        }
    }

    /// The namespaces to look at, each once.
    pub fn namespaces(&self) -> Vec<String> {
        let mut namespaces: Vec<_> = self
            .watch_namespaces
            .iter()
            .map(|name| name.trim().to_owned())
            .collect();
        namespaces.retain(|name| !name.is_empty());
        namespaces.sort();
        namespaces.dedup();
        namespaces
    }
}

/// Whether requests may have scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scripts {
    /// They may not.
    #[default]
    Off,
    /// Those of users who have the right to create `pods/exec`.
    Reviewed,
    /// All of them.
    Unreviewed,
}

impl Scripts {
    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Reviewed => "reviewed",
            Self::Unreviewed => "unreviewed",
        }
    }
}

/// `--scripts=reviewed` without webhooks: nobody would review them.
#[derive(Debug, thiserror::Error)]
#[error(
    "--scripts=reviewed needs the webhooks, which review who asks for a script: add --webhooks, or say off or unreviewed"
)]
pub struct UnreviewedScripts;

/// Stands for all kinds of other operators that can be served.
const ALL_KINDS: &str = "all";

/// What `--compat` takes, if these kinds of other operators are known.
pub fn compat_flags(known: &[&'static dyn ForeignKind]) -> Vec<&'static str> {
    let mut flags: Vec<&str> = known.iter().map(|kind| kind.flag()).collect();
    flags.dedup();
    flags.push(ALL_KINDS);
    flags
}

/// The kinds that flags of `--compat` name, in the order in which they are known.
pub fn select_kinds(known: &[&'static dyn ForeignKind], flags: &[&str]) -> Vec<&'static dyn ForeignKind> {
    let is_wanted = |flag: &str| flags.contains(&ALL_KINDS) || flags.contains(&flag);
    let wanted = known.iter().filter(|kind| is_wanted(kind.flag()));
    wanted.copied().collect()
}

/// A kind of another operator is wanted that is not known.
#[derive(Debug, thiserror::Error)]
#[error("--compat: {wanted:?} is not a kind that can be served: give one of {}", known.join(", "))]
pub struct UnknownKind {
    wanted: String,
    known: Vec<&'static str>,
}

/// Reads the name of a namespace.
pub fn namespace_name(name: &str) -> Result<String, String> {
    object_name_problem(name).map_or_else(
        || Ok(name.to_owned()),
        |problem| Err(format!("a namespace's name {problem}")),
    )
}

/// Reads a taint and its seconds. A variable that is set to nothing is no taint.
pub fn node_notice(text: &str) -> Result<TaintRule, String> {
    let (key, seconds) = match text.split_once('=') {
        Some((key, seconds)) => (key, Some(seconds)),
        None => (text, None),
    };
    let number = |seconds: &str| {
        let number = seconds.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| format!("{seconds:?} is no number of seconds"))
    };
    Ok(TaintRule {
        key: label_key_or_nothing(key)?,
        seconds: seconds.map(number).transpose()?,
    })
}

/// Reads a label and its value. A variable that is set to nothing is no label.
pub fn spot_label(text: &str) -> Result<SpotLabel, String> {
    let (key, value) = match text.split_once('=') {
        Some(parts) => parts,
        None if text.is_empty() => ("", ""),
        None => return Err("say it as KEY=VALUE".to_owned()),
    };
    label_value_problem(value).map_or(Ok(()), |problem| Err(format!("{value:?} {problem}")))?;
    Ok(SpotLabel {
        key: label_key_or_nothing(key)?,
        value: value.to_owned(),
    })
}

/// Reads the key of a label, a taint or an annotation, or nothing.
pub fn label_key_or_nothing(key: &str) -> Result<String, String> {
    match label_key_problem(key) {
        Some(problem) if !key.is_empty() => Err(format!("{key:?} {problem}")),
        _ => Ok(key.to_owned()),
    }
}

/// Reads the name of a namespace, or of none: a variable that is set to nothing is as good as one
/// that is not set.
fn namespace_or_nothing(name: &str) -> Result<String, String> {
    match name.trim() {
        "" => Ok(String::new()),
        name => namespace_name(name),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &[&str]) -> Options {
        Program::try_parse_from(std::iter::once(&"trainyard").chain(args))
            .unwrap()
            .options
    }

    #[test]
    fn nothing_needs_to_be_said() {
        let options = parse(&[]);
        assert!(!options.leader_elect && !options.webhooks && options.namespaces().is_empty());
        assert_eq!(options.ares_observer_address, None, "it has no authentication");
    }

    #[test]
    fn flags_are_what_the_manifests_say() {
        let options = parse(&[
            "--leader-elect",
            "--webhooks=false",
            "--watch-namespace=b,a",
            "--watch-namespace=b",
        ]);
        assert!(options.leader_elect && !options.webhooks);
        assert_eq!(options.namespaces(), ["a", "b"]);
    }

    #[test]
    fn nodes_may_say_by_other_taints_that_they_go() {
        let settings = parse(&[
            "--node-notice=example.org/going=90,example.org/leaving",
            "--node-notice=cloud.google.com/impending-node-termination=20",
            "--node-notice-annotation=example.org/until",
            "--spot-label=spot=true,example.org/kind=cheap",
        ])
        .settings();
        let seconds = |key: &str| {
            let rules = settings.notices.taints.iter().filter(|rule| rule.key == key);
            rules.map(|rule| rule.seconds).collect::<Vec<_>>()
        };
        assert_eq!(seconds("example.org/going"), [Some(90)]);
        assert_eq!(seconds("example.org/leaving"), [None]);
        assert_eq!(seconds("cloud.google.com/impending-node-termination"), [Some(20)]);
        assert_eq!(
            seconds("ToBeDeletedByClusterAutoscaler"),
            [None],
            "it is known as before"
        );
        assert_eq!(settings.notices.annotations, ["example.org/until"]);
        let labels = settings.spot_labels.iter();
        let labels: Vec<_> = labels.map(|label| (&*label.key, &*label.value)).collect();
        assert_eq!(labels, [("spot", "true"), ("example.org/kind", "cheap")]);
    }

    #[test]
    fn nodes_say_that_they_go_as_is_usual_unless_somebody_says_otherwise() {
        assert_eq!(parse(&[]).settings().notices, NoticeRules::default());
        let empty = parse(&["--node-notice=", "--spot-label="]).settings();
        assert_eq!(
            empty.notices,
            NoticeRules::default(),
            "a variable that is set to nothing"
        );
        assert!(empty.spot_labels.is_empty());
    }

    #[test]
    fn what_no_node_can_say_is_refused_at_once() {
        for (argument, problem) in [
            ("--node-notice=a b", "\"a b\" is no key of a label"),
            ("--node-notice=going=soon", "\"soon\" is no number of seconds"),
            ("--node-notice=going=-1", "\"-1\" is no number of seconds"),
            ("--node-notice-annotation=/x", "\"/x\" is no key of a label"),
            ("--spot-label=spot", "say it as KEY=VALUE"),
            ("--spot-label=spot=a b", "\"a b\" is no value of a label"),
        ] {
            let said = refused(argument);
            assert!(said.contains(problem), "{said}");
        }
    }

    fn refused(argument: &str) -> String {
        let parsed = Program::try_parse_from(["trainyard", argument]);
        parsed.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_namespace_is_refused_at_once() {
        for argument in [
            "--watch-namespace=a,,B b",
            "--watch-namespace=a.b",
            "--namespace=A",
            "--namespace=",
        ] {
            let said = refused(argument);
            assert!(said.contains("a namespace's name must "), "{said}");
        }
        assert_eq!(
            parse(&["--watch-namespace=", "--watch-namespace= b , a"]).namespaces(),
            ["a", "b"]
        );
    }

    #[test]
    fn scripts_are_off_unless_somebody_reviews_them_or_is_told_not_to() {
        let scripts = |args: &[&str]| parse(args).scripts().map_err(|error| error.to_string());
        assert_eq!(scripts(&["--webhooks"]), Ok(Scripts::Off));
        assert!(!parse(&["--webhooks"]).settings().runs_scripts);
        assert_eq!(
            scripts(&["--webhooks", "--scripts=reviewed"]),
            Ok(Scripts::Reviewed)
        );
        assert_eq!(scripts(&["--scripts=unreviewed"]), Ok(Scripts::Unreviewed));
        let error = scripts(&["--scripts=reviewed"]).unwrap_err();
        assert!(error.contains("add --webhooks"), "{error}");
    }

    #[test]
    fn a_kind_that_is_not_known_is_named() {
        let options = parse(&["--compat=", "--compat= ,"]);
        assert!(options.kinds(&[]).unwrap().is_empty());
        let error = parse(&["--compat=tfjob"])
            .kinds(&[])
            .map(|kinds| kinds.len())
            .unwrap_err();
        assert!(error.to_string().contains("\"tfjob\" is not a kind"), "{error}");
    }

    #[test]
    fn somebody_must_work() {
        assert!(
            refused("--concurrency=0").contains("1.."),
            "{}",
            refused("--concurrency=0")
        );
        assert_eq!(parse(&["--concurrency=1"]).concurrency, 1);
    }

    /// The page that lists the flags says what the program says.
    #[test]
    fn the_documented_concurrency_is_the_real_one() {
        let page = include_str!("../../../docs/operations.md");
        let row = page
            .lines()
            .find(|line| line.contains("`--concurrency N`"))
            .unwrap();
        assert_eq!(
            row.split('|').nth(3).unwrap().trim(),
            parse(&[]).concurrency.to_string()
        );
    }
}
