//! One fact, and the tables of them.

use std::path::PathBuf;

/// One thing found out, with what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact<T> {
    /// What it is; `None` where that is unknown, or where there is no such thing. Then the
    /// evidence says why.
    pub value: Option<T>,
    /// The file or the call that was asked.
    pub evidence: String,
    /// Where something is missing or poor: what to do about it, in one sentence.
    pub mend: Option<String>,
}

impl<T> Fact<T> {
    pub(crate) fn known(value: T, evidence: impl Into<String>) -> Self {
        Self::new(Some(value), evidence)
    }

    pub(crate) fn unknown(evidence: impl Into<String>) -> Self {
        Self::new(None, evidence)
    }

    pub(crate) fn new(value: Option<T>, evidence: impl Into<String>) -> Self {
        Self {
            value,
            evidence: evidence.into(),
            mend: None,
        }
    }

    pub(crate) fn with_mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }

    pub(crate) fn with_mend_if(self, is_poor: impl FnOnce(&T) -> bool, mend: &str) -> Self {
        if self.value.as_ref().is_some_and(is_poor) {
            self.with_mend(mend)
        } else {
            self
        }
    }

    pub(crate) fn map<U>(self, value: impl FnOnce(T) -> U) -> Fact<U> {
        Fact {
            value: self.value.map(value),
            evidence: self.evidence,
            mend: self.mend,
        }
    }

    /// Another fact that the same evidence shows.
    pub(crate) fn and_so<U>(&self, value: impl FnOnce(&T) -> U) -> Fact<U> {
        Fact::new(self.value.as_ref().map(value), self.evidence.clone())
    }
}

impl<T: Value> Fact<T> {
    pub(crate) fn told(&self, name: &'static str) -> Told<'_> {
        Told {
            name,
            value: self.value.as_ref().map(Value::text),
            evidence: &self.evidence,
            mend: self.mend.as_deref(),
        }
    }
}

/// A fact as text, to be printed. Names that end with `_bytes` have plain numbers of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Told<'f> {
    /// The name of the field that it is.
    pub name: &'static str,
    /// See [`Fact::value`].
    pub value: Option<String>,
    /// See [`Fact::evidence`].
    pub evidence: &'f str,
    /// See [`Fact::mend`].
    pub mend: Option<&'f str>,
}

/// What the value of a fact can be.
pub trait Value {
    /// As text, in base units.
    fn text(&self) -> String;
}

/// Types whose text is what `Display` gives.
macro_rules! shown_as_they_are {
    ($($value:ty),* $(,)?) => {$(
        impl $crate::facts::Value for $value {
            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
pub(super) use shown_as_they_are;

shown_as_they_are!(String, bool, u64, usize);

impl Value for PathBuf {
    fn text(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

impl Value for Vec<String> {
    fn text(&self) -> String {
        if self.is_empty() {
            return "none".to_owned();
        }
        self.join(", ")
    }
}

/// A struct of facts, and the list of them: what prints facts needs no list of its own.
macro_rules! facts {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $value:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $crate::facts::Fact<$value>,)*
        }

        impl $name {
            /// Every fact, as text, in the order of the fields.
            #[must_use]
            pub fn all(&self) -> Vec<$crate::facts::Told<'_>> {
                vec![$(self.$field.told(stringify!($field)),)*]
            }
        }
    };
}
pub(super) use facts;
