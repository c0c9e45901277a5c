//! What every case needs to run something and to time it.

use std::process::{Command, Stdio};
use std::time::Instant;

use gpumap::{Route, Runtime, Settings};

pub(crate) fn process(command: &mut Command) -> Result<f64, String> {
    let name = command.get_program().display().to_string();
    timed(|| {
        let status = command.stdout(Stdio::null()).status();
        let status = status.map_err(|error| format!("{name}: {error}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{name}: {status}"))
        }
    })
}

/// Settings of the environment have no say.
pub(crate) fn runtime(route: Route, piece: &str, workers: usize) -> Result<Runtime, String> {
    let mut settings = Settings::default();
    settings.set("GPUMAP_PIECE", piece).map_err(said)?;
    settings
        .set("GPUMAP_WORKERS", &workers.to_string())
        .map_err(said)?;
    settings.set("GPUMAP_ROUTE", route.name()).map_err(said)?;
    Ok(Runtime::builder().settings(settings).build())
}

pub(crate) fn timed(work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
