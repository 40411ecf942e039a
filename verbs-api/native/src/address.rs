//! Address handles.

use verbs_api::{AddressVector, Object, Refused, Result, Wc};
use verbs_sys::convert::{ah_attr_to_c, wc_to_c};
use verbs_sys::{ibv_ah, ibv_grh};

use crate::Pd;
use crate::raw::Raw;

/// An address handle.
#[derive(Debug)]
pub struct Ah(Raw<ibv_ah, Pd>);

impl Ah {
    pub(crate) fn create(pd: &Pd, av: &AddressVector) -> Result<Ah> {
        let create = pd.context().library.ibv_create_ah()?;
        let mut attr = ah_attr_to_c(av);
        // SAFETY: the domain is alive, the attributes valid.
        let ah = unsafe { create(pd.as_ptr(), &mut attr) };
        Ah::own(pd, ah)
    }

    pub(crate) fn from_wc(pd: &Pd, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<Ah> {
        const { assert!(size_of::<ibv_grh>() == 40) };
        let create = pd.context().library.ibv_create_ah_from_wc()?;
        let mut wc = wc_to_c(wc);
        let mut header = std::mem::MaybeUninit::<ibv_grh>::uninit();
        // SAFETY: the header is of that size, and any bytes are one; domain and places are alive.
        let ah = unsafe {
            std::ptr::copy_nonoverlapping(grh.as_ptr(), header.as_mut_ptr().cast(), grh.len());
            create(pd.as_ptr(), &mut wc, header.as_mut_ptr(), port)
        };
        Ah::own(pd, ah)
    }

    fn own(pd: &Pd, ah: *mut ibv_ah) -> Result<Ah> {
        let context = pd.context();
        let destroy = context.library.ibv_destroy_ah()?;
        // SAFETY: the domain is kept alive; the handle is ours from here on.
        let raw = unsafe { Raw::new("address handle", &context.objects, ah, destroy, pd.clone())? };
        Ok(Ah(raw))
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_ah {
        self.0.as_ptr()
    }
}

impl Object for Ah {
    fn destroy(self) -> Result<(), Refused<Self>> {
        match self.0.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: self, error }),
        }
    }
}
