//! Opening the library's driver, and closing it.

use std::io::Write;

use crate::code;
use crate::control::Mode;
use crate::cuda::Cuda;
use crate::world::{Done, World, world};

impl World {
    /// Once more open. Recorded of 1.11 to 1.15: without libcuda the answer is 5033. That a context must
    /// be current is assumed; some CUDA call must have been made.
    pub(crate) fn open_driver(&mut self) -> Done {
        if self.start.hazard {
            cry("the driver was opened where it spins for ever");
            std::process::abort();
        }
        if self.start.open != 0 {
            return Err(self.start.open.into());
        }
        let cuda = Cuda::loaded().ok_or(code::NVFS_SETUP_ERROR)?;
        cuda.context()?;
        self.open += 1;
        if self.open == 1 {
            self.opened_in = std::process::id();
            self.parameters.take_effect();
            self.heed_variables();
            self.watch_the_end();
        }
        Ok(())
    }

    /// Documented: what beats `cufile.json`. The log's text is the double's own.
    fn heed_variables(&mut self) {
        let variable = |name: &str| std::env::var(name).ok();
        if variable("CUFILE_FORCE_COMPAT_MODE").is_some_and(|it| it.eq_ignore_ascii_case("true")) {
            self.start.mode = Mode::Compat as i32;
        }
        if let Some(log) = variable("CUFILE_LOGFILE_PATH") {
            let _ = std::fs::write(log, format!("fake-cufile {} opened\n", self.start.version));
        }
    }

    /// What registering files and buffers does where nobody opened the driver. Recorded of 1.11 to 1.15.
    pub(crate) fn open_by_itself(&mut self) -> Done {
        match self.open {
            0 => self.open_driver(),
            _ => Ok(()),
        }
    }

    /// Recorded: 5001 where it is not open. Documented: 5006 where reads are under way.
    pub(crate) fn close_driver(&mut self) -> Done {
        self.needs_open()?;
        if self.open > 1 {
            self.open -= 1;
            return Ok(());
        }
        if !self.reading.is_empty() {
            self.complain("the driver closed with reads under way");
            return Err(code::DRIVER_CLOSING.into());
        }
        if !self.files.is_empty() {
            self.complain("the driver closed with files registered");
        }
        if !self.buffers.is_empty() {
            self.complain("the driver closed with device memory registered");
        }
        self.open = 0;
        self.files.clear();
        self.buffers.clear();
        self.parameters.closed();
        self.statistics.stop();
        Ok(())
    }

    fn watch_the_end(&mut self) {
        if !self.watches_the_end {
            self.watches_the_end = true;
            // SAFETY: the function is one of this shared object, which is never unloaded while it is
            // registered (it is called where it is).
            unsafe { libc::atexit(at_the_end) };
        }
    }
}

/// With statistics on and the driver open the library may crash at the end of the process: here it does.
extern "C" fn at_the_end() {
    let wrong = world(|world| {
        world.see_freed_memory();
        if world.open > 0 && world.statistics.started() {
            return Some("the process ends with statistics on and the driver open".to_owned());
        }
        let lives = world.live().iter().any(|count| *count > 0);
        let wrong = world.start.strict && (lives || !world.complaints.is_empty());
        wrong.then(|| format!("live: {:?}; {}", world.live(), world.complaints.join("; ")))
    });
    if let Some(wrong) = wrong {
        cry(&wrong);
        std::process::abort();
    }
}

fn cry(what: &str) {
    // Nobody is left to be told of it where this cannot be written.
    let _ = writeln!(std::io::stderr(), "the double of libcufile: {what}");
}
