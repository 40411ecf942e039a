//! `modify_qp`: another state, other attributes.
#![forbid(unsafe_code)]

use roce_wire::Qpn;
use verbs_api::{Error, QpAttr, QpState, Result};

use super::queue_pair::unknown;
use super::{Engine, MAX_RD_ATOMIC};
use crate::qp::{Link, Qp, transition};
use crate::shared::Shared;
use crate::{Path, Time};

impl Engine {
    /// Change state and attributes of a queue pair. A refused call changes nothing.
    ///
    /// # Errors
    /// EINVAL with a sentence that names the attribute.
    pub fn modify_qp(&mut self, now: Time, qpn: u32, attr: &QpAttr) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get(qpn).ok_or_else(|| unknown(qpn))?;
        let from = qp.state;
        let to = transition::check(qp.id.qp_type, from, attr)?;
        self.check_values(qp, attr)?;
        let merged = merge(&qp.attr, attr);
        let path = match attr.av {
            Some(_) => Some(self.connected_path(qp.id.qpn, &merged)?),
            None => None,
        };
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        let shared = &mut self.shared;
        qp.attr = merged;
        qp.attr.state = Some(to);
        if let (Some(path), QpState::Rtr | QpState::Sqd) = (path, to) {
            qp.relink(shared, path);
        }
        match (from, to) {
            (_, QpState::Reset) => qp.reset(shared),
            (_, QpState::Err) => qp.fail_by_command(shared),
            (QpState::Init, QpState::Rtr) => {
                qp.state = to;
                qp.start_responder(shared);
            }
            (QpState::Rtr, QpState::Rts) => {
                qp.state = to;
                qp.start_requester(shared);
            }
            (QpState::Rts, QpState::Sqd) => {
                qp.state = to;
                qp.drain(shared, attr.en_sqd_async_notify == Some(true));
            }
            (QpState::Sqd, QpState::Sqd) => qp.retune(attr),
            (_, QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe) => qp.state = to,
        }
        qp.make_ready(shared);
        qp.arm(shared);
        self.fail_overflowed();
        Ok(())
    }

    /// What the transition table cannot know: the port, the device, what is under way.
    fn check_values(&self, qp: &Qp, attr: &QpAttr) -> Result<()> {
        if let Some(port) = attr.port
            && port != 1
        {
            return Err(Error::invalid(format!(
                "port {port} does not exist; the device has port 1"
            )));
        }
        if let Some(index) = attr.pkey_index
            && index != 0
        {
            return Err(Error::invalid(format!(
                "P_Key index {index} does not exist; the table has index 0"
            )));
        }
        if let Some(mtu) = attr.path_mtu
            && mtu > self.port.active_mtu
        {
            return Err(Error::invalid(format!(
                "path MTU {} is above the port's active MTU {}",
                mtu.bytes(),
                self.port.active_mtu.bytes()
            )));
        }
        for (name, value) in [
            ("MAX_QP_RD_ATOMIC", attr.max_rd_atomic),
            ("MAX_DEST_RD_ATOMIC", attr.max_dest_rd_atomic),
        ] {
            if let Some(value) = value
                && value > MAX_RD_ATOMIC
            {
                return Err(Error::invalid(format!(
                    "{name} is {value}; the device allows {MAX_RD_ATOMIC}"
                )));
            }
        }
        if attr.alt_path.is_some()
            || attr
                .path_mig_state
                .is_some_and(|state| state != verbs_api::MigState::Migrated)
        {
            return Err(Error::invalid("automatic path migration is not offered"));
        }
        let is_retuned = qp.state == QpState::Sqd && attr.state.is_none_or(|state| state == QpState::Sqd);
        if is_retuned && qp.is_draining() {
            return Err(Error::invalid(
                "the send queue is still draining; wait for SQ_DRAINED",
            ));
        }
        Ok(())
    }
}

impl Qp {
    /// Lead to another place, or to one for the first time.
    fn relink(&mut self, shared: &mut Shared, path: Path) {
        self.release_link(shared);
        let now = shared.now;
        let peer = shared.peers.join(path.dst, self.attr.dest_qpn.unwrap_or(0), now);
        let mtu = self.attr.path_mtu.map_or(256, |mtu| mtu.bytes() as u32);
        let dest_qp = Qpn::new(self.attr.dest_qpn.unwrap_or(0)).unwrap_or_default();
        self.link = Some(Link {
            path,
            peer,
            dest_qp,
            mtu,
        });
    }
}

/// `old` with what `new` sets.
fn merge(old: &QpAttr, new: &QpAttr) -> QpAttr {
    QpAttr {
        state: new.state.or(old.state),
        cur_state: None,
        en_sqd_async_notify: new.en_sqd_async_notify.or(old.en_sqd_async_notify),
        access: new.access.or(old.access),
        pkey_index: new.pkey_index.or(old.pkey_index),
        port: new.port.or(old.port),
        qkey: new.qkey.or(old.qkey),
        av: new.av.or(old.av),
        path_mtu: new.path_mtu.or(old.path_mtu),
        timeout: new.timeout.or(old.timeout),
        retry_cnt: new.retry_cnt.or(old.retry_cnt),
        rnr_retry: new.rnr_retry.or(old.rnr_retry),
        rq_psn: new.rq_psn.or(old.rq_psn),
        max_rd_atomic: new.max_rd_atomic.or(old.max_rd_atomic),
        alt_path: old.alt_path,
        min_rnr_timer: new.min_rnr_timer.or(old.min_rnr_timer),
        sq_psn: new.sq_psn.or(old.sq_psn),
        max_dest_rd_atomic: new.max_dest_rd_atomic.or(old.max_dest_rd_atomic),
        path_mig_state: new.path_mig_state.or(old.path_mig_state),
        cap: old.cap,
        dest_qpn: new.dest_qpn.or(old.dest_qpn),
        rate_limit: new.rate_limit.or(old.rate_limit),
        sq_draining: false,
    }
}
