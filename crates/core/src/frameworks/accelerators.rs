//! Which resources are accelerators.

use k8s_openapi::api::core::v1::Container;

/// Extended resources of which one unit is one device that one process drives, by vendor.
const ACCELERATORS: &[&str] = &[
    "nvidia.com/gpu",
    // One device for several containers, each of which sees it as its own.
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "google.com/tpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "aws.amazon.com/neurondevice",
    "huawei.com/npu",
];

/// Vendors that name a resource after each model of theirs, or after each kind of slice.
const ACCELERATOR_PREFIXES: &[&str] = &["huawei.com/Ascend", "nvidia.com/mig-"];

/// How many accelerators a container asks for.
pub fn accelerators(container: &Container) -> i32 {
    let Some(resources) = &container.resources else {
        return 0;
    };
    // Kubernetes requires limits for extended resources; requests alone are not accepted.
    let limits = resources.limits.iter().flatten();
    let counts = limits.filter(|(name, _)| {
        ACCELERATORS.contains(&name.as_str())
            || ACCELERATOR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    });
    counts
        .filter_map(|(_, quantity)| quantity.0.parse::<i32>().ok())
        .fold(0, i32::saturating_add)
}

/// How many processes train in a pod: the user's number, else one for each accelerator that its
/// main container asks for, else one.
pub(super) fn processes(given: Option<i32>, main: &Container) -> i32 {
    given.unwrap_or_else(|| accelerators(main).max(1))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use rstest::rstest;

    use super::*;

    fn count(limits: &[(&str, &str)]) -> i32 {
        let limits = limits
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        accelerators(&Container {
            resources: Some(ResourceRequirements {
                limits: Some(limits.collect()),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        })
    }

    #[rstest]
    #[case::nvidia("nvidia.com/gpu")]
    #[case::nvidia_shared("nvidia.com/gpu.shared")]
    #[case::nvidia_slices("nvidia.com/mig-1g.5gb")]
    #[case::amd("amd.com/gpu")]
    #[case::intel("gpu.intel.com/i915")]
    #[case::intel_of_a_new_driver("gpu.intel.com/xe")]
    #[case::tpu("google.com/tpu")]
    #[case::gaudi("habana.ai/gaudi")]
    #[case::neuron("aws.amazon.com/neuron")]
    #[case::neuron_cores("aws.amazon.com/neuroncore")]
    #[case::neuron_devices("aws.amazon.com/neurondevice")]
    #[case::ascend("huawei.com/Ascend910")]
    #[case::ascend_of_another_model("huawei.com/Ascend310P")]
    #[case::ascend_of_any_model("huawei.com/npu")]
    fn is_one(#[case] name: &str) {
        assert_eq!(count(&[(name, "4"), ("memory", "8")]), 4);
    }

    #[rstest]
    #[case::cpu("cpu")]
    #[case::network("rdma/hca")]
    #[case::watching_a_device("gpu.intel.com/i915_monitoring")]
    #[case::memory_of_a_device("aliyun.com/gpu-mem")]
    fn is_none(#[case] name: &str) {
        assert_eq!(count(&[(name, "4")]), 0);
    }

    #[test]
    fn slices_of_several_sizes_are_added_up() {
        assert_eq!(
            count(&[("nvidia.com/mig-1g.5gb", "2"), ("nvidia.com/mig-2g.10gb", "1")]),
            3
        );
    }

    #[test]
    fn who_asks_for_nothing_has_none() {
        assert_eq!(accelerators(&Container::default()), 0);
    }
}
