//! The verbs calls that can be made to fail.

macro_rules! verbs {
    ($($verb:ident = $name:literal,)*) => {
        /// A verbs call. [`Verb::name`] is that of the C function, without its `ibv_`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)] // The names are their own.
        pub enum Verb { $($verb,)* }

        impl Verb {
            /// All of them.
            pub const ALL: &[Verb] = &[$(Verb::$verb,)*];

            /// Its name in C, without `ibv_`.
            pub const fn name(self) -> &'static str {
                match self { $(Verb::$verb => $name,)* }
            }
        }
    };
}

verbs! {
    GetDeviceList = "get_device_list",
    OpenDevice = "open_device",
    CloseDevice = "close_device",
    QueryDevice = "query_device",
    QueryPort = "query_port",
    QueryGid = "query_gid",
    QueryPkey = "query_pkey",
    QueryRtValues = "query_rt_values",
    GetAsyncEvent = "get_async_event",
    AllocPd = "alloc_pd",
    DeallocPd = "dealloc_pd",
    AllocParentDomain = "alloc_parent_domain",
    RegMr = "reg_mr",
    ReregMr = "rereg_mr",
    DeregMr = "dereg_mr",
    AllocNullMr = "alloc_null_mr",
    RegDmMr = "reg_dm_mr",
    AdviseMr = "advise_mr",
    AllocDm = "alloc_dm",
    FreeDm = "free_dm",
    AllocMw = "alloc_mw",
    DeallocMw = "dealloc_mw",
    BindMw = "bind_mw",
    CreateCompChannel = "create_comp_channel",
    DestroyCompChannel = "destroy_comp_channel",
    GetCqEvent = "get_cq_event",
    CreateCq = "create_cq",
    ResizeCq = "resize_cq",
    ModifyCq = "modify_cq",
    ReqNotifyCq = "req_notify_cq",
    PollCq = "poll_cq",
    DestroyCq = "destroy_cq",
    CreateSrq = "create_srq",
    ModifySrq = "modify_srq",
    QuerySrq = "query_srq",
    PostSrqRecv = "post_srq_recv",
    DestroySrq = "destroy_srq",
    OpenXrcd = "open_xrcd",
    CloseXrcd = "close_xrcd",
    OpenQp = "open_qp",
    CreateQp = "create_qp",
    ModifyQp = "modify_qp",
    QueryQp = "query_qp",
    PostSend = "post_send",
    PostRecv = "post_recv",
    AttachMcast = "attach_mcast",
    DetachMcast = "detach_mcast",
    DestroyQp = "destroy_qp",
    CreateAh = "create_ah",
    DestroyAh = "destroy_ah",
}

impl Verb {
    /// By its name, with or without `ibv_`.
    pub fn named(name: &str) -> Option<Verb> {
        let name = name.strip_prefix("ibv_").unwrap_or(name);
        Verb::ALL.iter().copied().find(|verb| verb.name() == name)
    }
}

/// Verbs that a rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbSet(u64);

impl VerbSet {
    /// Every call.
    pub const ANY: VerbSet = VerbSet(u64::MAX);

    /// This one.
    pub const fn one(verb: Verb) -> VerbSet {
        VerbSet(1 << verb as u8)
    }

    /// This one, too.
    #[must_use]
    pub const fn and(self, verb: Verb) -> VerbSet {
        VerbSet(self.0 | 1 << verb as u8)
    }

    /// Whether it is one of them.
    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }
}

const _: () = assert!(Verb::ALL.len() <= 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_found_by_its_name() {
        for verb in Verb::ALL {
            assert_eq!(Verb::named(verb.name()), Some(*verb));
            assert_eq!(Verb::named(&format!("ibv_{}", verb.name())), Some(*verb));
        }
        assert_eq!(Verb::named("ibv_ibv_reg_mr"), None);
    }

    #[test]
    fn a_set_has_what_was_put_in() {
        let set = VerbSet::one(Verb::RegMr).and(Verb::DestroyAh);
        let found: Vec<Verb> = Verb::ALL
            .iter()
            .copied()
            .filter(|verb| set.contains(*verb))
            .collect();
        assert_eq!(found, [Verb::RegMr, Verb::DestroyAh]);
    }
}
