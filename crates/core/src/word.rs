//! A macro for enums whose variants are written as fixed names, and the error for an unknown name.

/// Implements the list of all variants, and the conversions between the variants and their names. A name is the same in
/// YAML, in the store, in JSON and in output.
macro_rules! written_as {
    ($($name:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {$(
        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::word::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word).ok_or_else(|| {
                    $crate::word::UnknownWord { word: word.to_owned(), known: &[$($word),+] }
                })
            }
        }
    )+};
}
pub(crate) use written_as;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown word {word:?}; expected one of {}", known.join(", "))]
pub struct UnknownWord {
    pub word: String,
    pub known: &'static [&'static str],
}
