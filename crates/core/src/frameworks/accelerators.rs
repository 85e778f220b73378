//! Which resources are accelerators.

use k8s_openapi::api::core::v1::Container;

/// Extended resources of which one unit is one device that one process drives, by vendor.
const ACCELERATORS: &[&str] = &[
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "google.com/tpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "aws.amazon.com/neurondevice",
];

/// Vendors that name a resource after each model of theirs.
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
