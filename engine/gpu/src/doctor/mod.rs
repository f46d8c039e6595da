//! What there is on this machine for the CUDA backend: libraries, driver and devices, with what the driver says of each.

mod attributes;

use std::fs;
use std::path::Path;

use cudarc::driver::result;
use cudarc::driver::sys::CUdevice;
use engine::plan::DeviceAnswer;
use serde::Serialize;

use crate::library::{Found, Library, Missing, require};

pub(crate) use attributes::ask;
pub use attributes::known_attributes;

/// One library, found or not.
#[derive(Clone, Debug, Serialize)]
pub struct LibraryReport {
    pub library: Library,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
    /// Why it cannot be used: what was looked for and where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One GPU as its driver describes it.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// As CUDA counts.
    pub ordinal: usize,
    pub name: String,
    pub uuid: String,
    /// "9.0".
    pub compute_capability: String,
    /// Bytes, all of it.
    pub memory: u64,
    /// For the comparison with the record.
    #[serde(skip)]
    pub answers: Vec<DeviceAnswer>,
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    pub libraries: Vec<LibraryReport>,
    /// The driver's own version, e.g. 580.65.06.
    pub driver: Option<String>,
    pub devices: Vec<DeviceReport>,
    /// Why there is no device, if there is none.
    pub problem: Option<String>,
}

/// Asks libraries and driver. `features` names the feature words that a device attribute answers, each with the
/// attribute's name.
pub fn survey(features: &[(String, String)]) -> Survey {
    let libraries = Library::ALL.map(report).to_vec();
    let driver = require(Library::Driver).ok().and_then(|found| driver_version(&found.path));
    let (devices, problem) = match devices(features, driver.as_deref()) {
        Ok(devices) if devices.is_empty() => (
            devices,
            Some("the driver sees no GPU; CUDA_VISIBLE_DEVICES may hide some, and --device cpu works".to_owned()),
        ),
        Ok(devices) => (devices, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    Survey { libraries, driver, devices, problem }
}

fn report(library: Library) -> LibraryReport {
    match require(library) {
        Ok(found) => LibraryReport { library, found: Some(found.clone()), missing: None },
        Err(missing) => LibraryReport { library, found: None, missing: Some(Missing::to_string(missing)) },
    }
}

/// From the name of the library's file, else from the kernel's module.
fn driver_version(library: &Path) -> Option<String> {
    let of_file = library.file_name().and_then(|name| name.to_str()?.split_once(".so.").map(|(_, version)| version));
    if let Some(version) = of_file.filter(|version| version.contains('.')) {
        return Some(version.to_owned());
    }
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let line = text.lines().find(|line| line.contains("Kernel Module"))?;
    line.split_whitespace().find(|word| is_version(word)).map(str::to_owned)
}

fn is_version(word: &str) -> bool {
    word.contains('.') && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn devices(features: &[(String, String)], driver: Option<&str>) -> Result<Vec<DeviceReport>, String> {
    require(Library::Driver).map_err(Missing::to_string)?;
    let message = |error: cudarc::driver::DriverError| format!("the driver does not start: {error}");
    result::init().map_err(message)?;
    let count = result::device::get_count().map_err(message)?;
    let device = |ordinal| {
        let device = result::device::get(ordinal)?;
        describe(device, ordinal as usize, features, driver)
    };
    (0..count).map(device).collect::<Result<_, _>>().map_err(message)
}

fn describe(
    device: CUdevice,
    ordinal: usize,
    features: &[(String, String)],
    driver: Option<&str>,
) -> Result<DeviceReport, cudarc::driver::DriverError> {
    let name = result::device::get_name(device)?;
    // SAFETY: `device` was handed out by the driver.
    let memory = unsafe { result::device::total_mem(device) }? as u64;
    let uuid = result::device::get_uuid(device)?;
    let hexadecimal: String = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    let compute_capability = attributes::compute_capability(device)?;
    let mut answers = attributes::answers(device, features);
    answers.extend(attributes::identity(&name, &compute_capability, memory, driver));
    Ok(DeviceReport { ordinal, name, uuid: format!("GPU-{hexadecimal}"), compute_capability, memory, answers })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use engine::plan::{Database, feature_attributes};

    use super::{driver_version, known_attributes, survey};

    #[test]
    fn every_attribute_that_the_database_names_can_be_asked_for() {
        let named = feature_attributes(&Database::embedded());
        assert!(named.len() >= 5, "{named:?}");
        for (feature, attribute) in named {
            assert!(known_attributes().any(|known| known == attribute), "{feature}: {attribute}");
        }
    }

    #[test]
    fn the_drivers_version_is_in_its_files_name() {
        let version = |path: &str| driver_version(Path::new(path));
        assert_eq!(version("/usr/lib/libcuda.so.580.159.04").as_deref(), Some("580.159.04"));
    }

    /// On a machine without a GPU this is the message that a user sees; on one with, the devices are described.
    #[test]
    fn a_survey_says_what_there_is_or_why_there_is_nothing() {
        let survey = survey(&[]);
        assert_eq!(survey.libraries.len(), 4);
        match &survey.problem {
            Some(problem) => assert!(survey.devices.is_empty() && !problem.is_empty()),
            None => assert!(survey.devices.iter().all(|device| device.memory > 0 && !device.answers.is_empty())),
        }
        for library in survey.libraries {
            assert_eq!(library.found.is_some(), library.missing.is_none());
        }
    }
}
