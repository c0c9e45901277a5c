//! Contexts: the primary one of each device, and others; and what went wrong in them.

use crate::code;
use crate::world::{Done, World};

/// The number of the first context that is not a device's primary one; that of those is the device's.
const FIRST_OTHER: usize = 1000;

impl World {
    /// The device of a context that lives.
    pub(crate) fn device_of_context(&self, context: usize) -> Done<usize> {
        let primary = self.retained.get(&context).is_some_and(|count| *count > 0);
        let other = self.others.get(&context).copied();
        let device = primary.then_some(context).or(other);
        device.ok_or(code::CONTEXT_IS_DESTROYED)
    }

    /// What went wrong in a context, which every call in it tells from then on.
    pub(crate) fn told(&self, context: usize) -> Done {
        self.failed
            .get(&context)
            .map_or(Ok(()), |error| Err(*error))
    }

    pub(crate) fn knows_context(&self, context: usize) -> bool {
        context < self.devices || self.others.contains_key(&context)
    }

    pub(crate) fn new_context(&mut self, device: usize) -> usize {
        let context = FIRST_OTHER + usize::try_from(self.handle()).unwrap_or(0);
        self.others.insert(context, device);
        context
    }

    pub(crate) fn end_context(&mut self, context: usize) -> Done {
        self.others.remove(&context).ok_or(code::INVALID_CONTEXT)?;
        self.ended(context);
        Ok(())
    }

    pub(crate) fn release_primary(&mut self, device: usize) -> Done {
        let count = self.retained.entry(device).or_default();
        *count = count.checked_sub(1).ok_or(code::INVALID_CONTEXT)?;
        if *count == 0 {
            self.ended(device);
        }
        Ok(())
    }

    /// What is left in a context ends with it; programs free it before.
    fn ended(&mut self, context: usize) {
        let left = self.memory.values().any(|one| one.context == context)
            || self.pinned.values().any(|one| one.context == context)
            || self.registered.values().any(|one| one.context == context)
            || self.modules.values().any(|one| one.context == context)
            || self.streams.values().any(|one| one.context == context)
            || self.events.values().any(|one| one.context == context);
        if left {
            self.violate("a context released with things living in it");
        }
        self.failed.remove(&context);
    }
}
