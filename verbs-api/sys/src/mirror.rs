//! Declares a mirror and the list of its offsets in one go, so that a test can compare all of them with C.

/// What a mirror looks like: C name, size, alignment and the offset of each member, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    pub name: &'static str,
    pub size: usize,
    pub fields: &'static [(&'static str, usize)],
}

/// Declare `#[repr(C)]` structs, each with its [`Mirror`].
macro_rules! mirror {
    ($( $(#[$meta:meta])* struct $name:ident { $( $(#[$fmeta:meta])* $field:ident : $ty:ty ),* $(,)? } )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub struct $name { $( $(#[$fmeta])* pub $field: $ty ),* }

            impl $name {
                /// Size and offsets, for comparison with C.
                pub const MIRROR: $crate::Mirror = $crate::Mirror {
                    name: stringify!($name),
                    size: size_of::<$name>(),
                    fields: &[ $( (stringify!($field), std::mem::offset_of!($name, $field)) ),* ],
                };
            }
        )*
        /// All mirrors of this file.
        pub(crate) const MIRRORS: &[$crate::Mirror] = &[ $( $name::MIRROR ),* ];
    };
}
pub(crate) use mirror;

/// All mirrors of this crate.
pub fn mirrors() -> impl Iterator<Item = Mirror> {
    [
        crate::attr::MIRRORS,
        crate::cm::MIRRORS,
        crate::context::MIRRORS,
        crate::device::MIRRORS,
        crate::object::MIRRORS,
        crate::work::MIRRORS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
