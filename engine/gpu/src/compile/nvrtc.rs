//! The run-time compiler.

use std::ffi::{CString, c_char, c_int};

use cudarc::nvrtc::{result, sys};

use super::{CompileError, CompileTarget, Compiled, Unit, resources};
use crate::library::{Library, require};

/// NVRTC, found and answering. Compiling is safe from several threads at once.
#[derive(Clone, Debug)]
pub struct Nvrtc {
    name: String,
}

impl Nvrtc {
    /// Errors: no library, or one that does not answer.
    pub fn open() -> Result<Self, CompileError> {
        require(Library::Nvrtc).map_err(|missing| CompileError::NoCompiler(missing.to_string()))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is there; both places are written before they are read.
        let version = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
        check("nvrtcVersion", version)?;
        Ok(Self { name: format!("NVRTC {major}.{minor}") })
    }

    /// Name and version: part of the cache's key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Errors: the compiler refuses the unit, with its log.
    pub fn compile(&self, unit: &Unit, target: &CompileTarget) -> Result<Compiled, CompileError> {
        let program = Program::new(unit)?;
        // SAFETY: the program is not destroyed yet.
        let compiled = unsafe { result::compile_program(program.handle, &target.options(unit)) };
        let log = program.log()?;
        if compiled.is_err() {
            let (unit, target, version) = (unit.name().to_owned(), target.target.clone(), self.name.clone());
            return Err(CompileError::Rejected { unit, target, version, log });
        }
        Ok(Compiled { cubin: program.cubin()?, compiler: self.name.clone(), resources: resources::parse(&log) })
    }
}

/// A program of the compiler, with the texts that it refers to.
struct Program {
    handle: sys::nvrtcProgram,
    _texts: Vec<CString>,
}

impl Program {
    fn new(unit: &Unit) -> Result<Self, CompileError> {
        let text = |text: &str| CString::new(text).expect("sources have no zero byte");
        let names: Vec<CString> = Unit::headers().iter().map(|(name, _)| text(name)).collect();
        let bodies: Vec<CString> = Unit::headers().iter().map(|(_, body)| text(body)).collect();
        let pointers = |texts: &[CString]| -> Vec<*const c_char> { texts.iter().map(|text| text.as_ptr()).collect() };
        let (name_pointers, body_pointers) = (pointers(&names), pointers(&bodies));
        let (source, name) = (text(unit.text()), text(&format!("{}.cu", unit.name())));
        let mut handle = std::ptr::null_mut();
        // SAFETY: all texts live as long as the program; the arrays have as many entries as is said.
        let created = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut handle,
                source.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                body_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        check("nvrtcCreateProgram", created)?;
        let texts = names.into_iter().chain(bodies).chain([source, name]).collect();
        Ok(Self { handle, _texts: texts })
    }

    fn log(&self) -> Result<String, CompileError> {
        // SAFETY: the program is not destroyed yet.
        let log = unsafe { result::get_program_log(self.handle) };
        let log =
            log.map_err(|error| CompileError::Compiler { call: "nvrtcGetProgramLog", error: error.to_string() })?;
        let bytes: Vec<u8> = log.into_iter().map(|letter| letter as u8).take_while(|letter| *letter != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, CompileError> {
        let mut size = 0;
        // SAFETY: the program was compiled; the size is written before it is read.
        check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(self.handle, &raw mut size) })?;
        let mut cubin = vec![0u8; size];
        // SAFETY: as large as the compiler said.
        check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(self.handle, cubin.as_mut_ptr().cast()) })?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once. A failure leaves a little memory behind and nothing to do.
        let _ = unsafe { result::destroy_program(self.handle) };
    }
}

fn check(call: &'static str, result: sys::nvrtcResult) -> Result<(), CompileError> {
    result.result().map_err(|error| CompileError::Compiler { call, error: error.to_string() })
}
