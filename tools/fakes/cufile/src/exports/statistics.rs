//! Statistics. From 1.15 on.

use std::ffi::c_int;

use super::Out;
use crate::world::{Done, World};

/// Recorded of 1.15 and 1.19: null is refused before anything else.
fn statistics(world: &World, level: i32, to: &Out<u8>) -> Done {
    to.there()?;
    let words = world.statistics_of(level)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    to.put_all(&bytes)
}

export! {
    fn cuFileSetStatsLevel(level: c_int) |world| {
        world.set_level(level)?;
    }

    fn cuFileGetStatsLevel(to: Out<c_int>) |world| {
        to.put(world.statistics.level)?;
    }

    fn cuFileStatsStart() |world| {
        world.start_statistics()?;
    }

    fn cuFileStatsStop() |world| {
        world.stop_statistics()?;
    }

    fn cuFileStatsReset() |world| {
        world.reset_statistics()?;
    }

    fn cuFileGetStatsL1(to: Out<u8>) |world| {
        statistics(world, 1, &to)?;
    }

    fn cuFileGetStatsL2(to: Out<u8>) |world| {
        statistics(world, 2, &to)?;
    }

    fn cuFileGetStatsL3(to: Out<u8>) |world| {
        statistics(world, 3, &to)?;
    }
}
