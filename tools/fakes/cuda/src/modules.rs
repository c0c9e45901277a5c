//! Modules: programs for the device, as text; and the kernels in them.

use crate::code;
use crate::kernels::Kernel;
use crate::work::Action;
use crate::world::{Done, World};

pub(crate) struct Module {
    pub(crate) context: usize,
    entries: Vec<String>,
}

/// The version of PTX that a text is of.
fn version(ptx: &str) -> Option<(i32, i32)> {
    let version = ptx
        .lines()
        .find_map(|line| line.strip_prefix(".version "))?;
    let (major, minor) = version.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn entries(ptx: &str) -> Vec<String> {
    let after = ptx.split(".entry ").skip(1);
    let names = after
        .filter_map(|text| text.split_once('('))
        .map(|(name, _)| name.trim());
    names.map(str::to_owned).collect()
}

impl World {
    /// The newest version of PTX that the driver takes: 7.4 came with 11.4, 8.0 with 12.0, 9.0 with 13.0.
    fn newest_ptx(&self) -> (i32, i32) {
        let (major, minor) = (self.driver_version / 1000, self.driver_version % 1000 / 10);
        (major - 4, minor)
    }

    pub(crate) fn load_module(&mut self, context: usize, ptx: &[u8]) -> Done<u64> {
        let ptx = str::from_utf8(ptx).map_err(|_| code::INVALID_IMAGE)?;
        let version = version(ptx).ok_or(code::INVALID_PTX)?;
        if version > self.newest_ptx() {
            return Err(code::UNSUPPORTED_PTX_VERSION);
        }
        let entries = entries(ptx);
        let handle = self.handle();
        self.modules.insert(handle, Module { context, entries });
        Ok(handle)
    }

    pub(crate) fn unload_module(&mut self, module: u64) -> Done {
        self.modules.remove(&module).ok_or(code::INVALID_HANDLE)?;
        let of_it = |op: &Action| matches!(op, Action::Kernel(launch) if launch.module == module);
        if self.ops.values().any(|op| of_it(&op.action)) {
            self.violate("a module unloaded with work in flight");
            self.finish_all();
        }
        self.functions.retain(|_, (of, _)| *of != module);
        Ok(())
    }

    /// A kernel of a module that the double knows how to run.
    pub(crate) fn function(&mut self, module: u64, name: &str) -> Done<u64> {
        let entries = &self
            .modules
            .get(&module)
            .ok_or(code::INVALID_HANDLE)?
            .entries;
        let known = entries.iter().any(|entry| entry == name);
        let kernel = Kernel::named(name)
            .filter(|_| known)
            .ok_or(code::NOT_FOUND)?;
        let of = |one: &(u64, Kernel)| *one == (module, kernel);
        if let Some((handle, _)) = self.functions.iter().find(|(_, one)| of(one)) {
            return Ok(*handle);
        }
        let handle = self.handle();
        self.functions.insert(handle, (module, kernel));
        Ok(handle)
    }

    pub(crate) fn kernel(&self, context: usize, function: u64) -> Done<(u64, Kernel)> {
        let (module, kernel) = *self.functions.get(&function).ok_or(code::INVALID_HANDLE)?;
        let of = self.modules.get(&module).map(|module| module.context);
        (of == Some(context))
            .then_some((module, kernel))
            .ok_or(code::INVALID_HANDLE)
    }
}
