//! What a fabric that stands on another one leaves to that.

/// Methods of [`Fabric`](super::Fabric) that the field of this name answers, inside an `impl`:
/// `forward!(inner: counters, qpn_slice);`. Here is each signature once more, and nowhere else.
macro_rules! forward {
    ($inner:ident: $($method:ident),* $(,)?) => {
        $($crate::fabric::forward::forward!(@$method $inner);)*
    };
    (@send_as_it_is $inner:ident) => {
        fn send_as_it_is(&mut self, path: &softroce_engine::Path, datagram: &[u8]) {
            self.$inner.send_as_it_is(path, datagram);
        }
    };
    (@fds $inner:ident) => {
        fn fds(&self) -> Vec<std::os::fd::RawFd> {
            self.$inner.fds()
        }
    };
    (@counters $inner:ident) => {
        fn counters(&self) -> $crate::fabric::FabricCounters {
            self.$inner.counters()
        }
    };
    (@receive_pressure $inner:ident) => {
        fn receive_pressure(&mut self) -> bool {
            self.$inner.receive_pressure()
        }
    };
    (@unread_bytes $inner:ident) => {
        fn unread_bytes(&mut self) -> u64 {
            self.$inner.unread_bytes()
        }
    };
    (@receive_buffer_bytes $inner:ident) => {
        fn receive_buffer_bytes(&self) -> u32 {
            self.$inner.receive_buffer_bytes()
        }
    };
    (@port $inner:ident) => {
        fn port(&mut self) -> softroce_engine::PortConfig {
            self.$inner.port()
        }
    };
    (@port_changed $inner:ident) => {
        fn port_changed(&mut self) -> bool {
            self.$inner.port_changed()
        }
    };
    (@disturbance $inner:ident) => {
        fn disturbance(&mut self) -> Option<(softroce_faults::Event, softroce_faults::Numbers)> {
            self.$inner.disturbance()
        }
    };
    (@judges_packets $inner:ident) => {
        fn judges_packets(&self) -> bool {
            self.$inner.judges_packets()
        }
    };
    (@qpn_slice $inner:ident) => {
        fn qpn_slice(&self) -> std::ops::Range<u32> {
            self.$inner.qpn_slice()
        }
    };
    (@multicast $inner:ident) => {
        fn join(&mut self, group: std::net::IpAddr) -> verbs_api::Result<()> {
            self.$inner.join(group)
        }

        fn leave(&mut self, group: std::net::IpAddr) -> verbs_api::Result<()> {
            self.$inner.leave(group)
        }

        fn has_multicast(&self) -> bool {
            self.$inner.has_multicast()
        }
    };
    (@is_on_this_machine $inner:ident) => {
        fn is_on_this_machine(&self, address: std::net::IpAddr) -> bool {
            self.$inner.is_on_this_machine(address)
        }
    };
    (@services $inner:ident) => {
        fn claim_service(&mut self, service: roce_wire::cm::ServiceId) -> verbs_api::Result<()> {
            self.$inner.claim_service(service)
        }

        fn release_service(&mut self, service: roce_wire::cm::ServiceId) {
            self.$inner.release_service(service);
        }
    };
    (@depart $inner:ident) => {
        fn depart(&mut self) {
            self.$inner.depart();
        }
    };
    (@report_header_fields $inner:ident) => {
        fn report_header_fields(&mut self) {
            self.$inner.report_header_fields();
        }
    };
}

pub(crate) use forward;
