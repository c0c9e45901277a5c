//! Parameters. From 1.14 on; the bounds from 1.15 on.

use std::ffi::{CStr, c_char, c_int};

use super::Out;
use crate::code;

export! {
    fn cuFileGetParameterSizeT(number: c_int, to: Out<usize>) |world| {
        let number = world.knows_size(number)?;
        to.put(world.parameters.size(number))?;
    }

    fn cuFileGetParameterBool(number: c_int, to: Out<bool>) |world| {
        let number = world.knows_flag(number)?;
        to.put(world.parameters.flag(number))?;
    }

    /// Recorded of 1.15: 5022 where the text does not fit.
    fn cuFileGetParameterString(number: c_int, to: Out<u8>, len: c_int) |world| {
        let number = world.knows_text(number)?;
        let mut text = world.parameters.text(number).into_bytes();
        text.push(0);
        if usize::try_from(len).is_ok_and(|len| len < text.len()) || len < 0 {
            return Err(code::INVALID_VALUE.into());
        }
        to.put_all(&text)?;
    }

    fn cuFileGetParameterMinMaxValue(number: c_int, least: Out<usize>, most: Out<usize>) |world| {
        let bounds = world.bounds(number)?;
        most.there()?;
        least.put(bounds.0)?;
        most.put(bounds.1)?;
    }

    fn cuFileSetParameterSizeT(number: c_int, value: usize) |world| {
        world.set_size(number, value)?;
    }

    fn cuFileSetParameterBool(number: c_int, value: bool) |world| {
        world.set_flag(number, value)?;
    }

    fn cuFileSetParameterString(number: c_int, value: *const c_char) |world| {
        if value.is_null() {
            return Err(code::INVALID_VALUE.into());
        }
        // SAFETY: not null; the library's reference asks for a string that ends with a zero.
        let value = unsafe { CStr::from_ptr(value) };
        world.set_text(number, value.to_string_lossy().into_owned())?;
    }
}
