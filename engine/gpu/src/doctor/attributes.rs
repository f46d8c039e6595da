//! Device attributes, and the places of a record that say the same.

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};
use cudarc::driver::{DriverError, result};
use engine::plan::{DeviceAnswer, DeviceValue};

/// Attributes that the database may name for a feature.
const FEATURES: &[(&str, Attribute)] = &[
    ("CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH", Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH),
    ("CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED", Attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED),
    ("CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH", Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH),
    ("CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED", Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED),
    (
        "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    ),
    ("CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED", Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
];

/// Record fields that one attribute answers.
const FIELDS: &[(&str, Attribute)] = &[
    ("/multiprocessors", Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    ("/l2_cache", Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    ("/limits/shared_memory_per_block_optin", Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    ("/limits/shared_memory_per_multiprocessor", Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    ("/limits/registers_per_multiprocessor", Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
    ("/limits/threads_per_block", Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    ("/limits/threads_per_multiprocessor", Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
    ("/limits/blocks_per_multiprocessor", Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
];

/// Names of the attributes that can be asked for.
pub fn known_attributes() -> impl Iterator<Item = &'static str> {
    FEATURES.iter().map(|(name, _)| *name)
}

/// One attribute; none where an older driver does not know it.
pub(crate) fn ask(device: CUdevice, attribute: Attribute) -> Option<u64> {
    // SAFETY: `device` was handed out by the driver, which checks the attribute.
    let value = unsafe { result::device::get_attribute(device, attribute) }.ok()?;
    u64::try_from(value).ok()
}

/// "9.0". Text, because nothing may compare it as a number.
pub(crate) fn compute_capability(device: CUdevice) -> Result<String, DriverError> {
    // SAFETY: `device` was handed out by the driver.
    let part = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let major = part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(format!("{major}.{minor}"))
}

/// What attributes answer.
pub(super) fn answers(device: CUdevice, features: &[(String, String)]) -> Vec<DeviceAnswer> {
    let answer = |pointer: &str, value| DeviceAnswer { pointer: pointer.to_owned(), value };
    let mut answers: Vec<DeviceAnswer> = FIELDS
        .iter()
        .filter_map(|(pointer, attribute)| Some(answer(pointer, DeviceValue::Number(ask(device, *attribute)?))))
        .collect();
    for (word, name) in features {
        let Some((_, attribute)) = FEATURES.iter().find(|(known, _)| known == name) else { continue };
        if let Some(value) = ask(device, *attribute) {
            answers.push(answer(&format!("/features/{word}"), DeviceValue::Flag(value != 0)));
        }
    }
    let clock = ask(device, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    let bits = ask(device, Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    if let (Some(kilohertz), Some(bits)) = (clock, bits) {
        // Two transfers a clock.
        let bandwidth = kilohertz as f64 * 1e3 * 2.0 * bits as f64 / 8.0;
        answers.push(answer("/memory_bandwidth", DeviceValue::About(bandwidth)));
    }
    answers
}

/// What is known without an attribute.
pub(super) fn identity(name: &str, compute_capability: &str, memory: u64, driver: Option<&str>) -> Vec<DeviceAnswer> {
    let answer = |pointer: &str, value| DeviceAnswer { pointer: pointer.to_owned(), value };
    let mut answers = vec![
        answer("/device_names", DeviceValue::Text(name.to_owned())),
        answer("/compute_capability", DeviceValue::Text(compute_capability.to_owned())),
        answer("/memory", DeviceValue::About(memory as f64)),
    ];
    answers.extend(driver.map(|version| answer("/compile/min_driver", DeviceValue::AtLeast(version.to_owned()))));
    answers
}
