//! What stands in for the shared object in a build without the feature `cuda`: it is never found.

use std::path::Path;

use super::error::CufileError;

/// No value has this type.
pub(super) enum Library {}

impl Library {
    pub(super) fn find(_: Option<&Path>) -> Result<Self, CufileError> {
        Err(CufileError::NoLibrary {
            tried: "this build leaves devices out (feature `cuda`)".to_owned(),
        })
    }

    pub(super) unsafe fn get<F: Copy>(&self, _: &str) -> Option<F> {
        match *self {}
    }

    pub(super) fn keep(self) {
        match self {}
    }
}
