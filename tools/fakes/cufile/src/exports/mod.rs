//! The library's functions, by their names in it.
//!
//! Each counts its calls, asks the script, and answers with the library's codes.
#![allow(non_snake_case, reason = "the library's names")]

use crate::code;
use crate::world::Done;

macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) |$world:ident| $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $kind),*) -> $crate::code::Status {
            let done: $crate::world::Done = $crate::world::world(|$world| {
                $world.called(stringify!($name))?;
                $body
                #[allow(unreachable_code)]
                Ok(())
            });
            done.err().unwrap_or_default()
        }
    )*};
}

mod driver;
mod parameters;
mod registering;
mod statistics;

/// Where an answer goes: what a program hands over for it.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn put(&self, value: T) -> Done {
        self.there()?;
        // SAFETY: the library's reference asks for a place that can be written to; null was refused.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Refuses null.
    pub(crate) fn there(&self) -> Done {
        match self.0.is_null() {
            true => Err(code::INVALID_VALUE.into()),
            false => Ok(()),
        }
    }
}

impl Out<u8> {
    /// Writes all of them, and not a byte more.
    pub(crate) fn put_all(&self, bytes: &[u8]) -> Done {
        self.there()?;
        // SAFETY: the library's reference asks for a place of this length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        Ok(())
    }
}
