//! `modify_qp`: another state, other attributes.
#![forbid(unsafe_code)]

use verbs_api::{Error, MigState, QpAttr, QpState, Result};

use super::queue_pair::unknown;
use super::{Engine, MAX_RD_ATOMIC};
use crate::qp::{Qp, transition};
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
        let alternate = self.alternate_path(qp, attr, &merged)?;
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
        if let Some(path) = alternate {
            qp.load_alternate(path);
        }
        if let Some(state) = attr.path_mig_state {
            qp.command_migration(shared, state);
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
        let is_retuned = qp.state == QpState::Sqd && attr.state.is_none_or(|state| state == QpState::Sqd);
        if is_retuned && qp.is_draining() {
            return Err(Error::invalid(
                "the send queue is still draining; wait for SQ_DRAINED",
            ));
        }
        if attr.max_rd_atomic == Some(0) && qp.has_reads_queued(&self.shared) {
            return Err(Error::invalid(
                "with MAX_QP_RD_ATOMIC of 0 the READs and atomics in the send queue could never be sent",
            ));
        }
        Ok(())
    }

    /// Where the alternate path of this call leads, if it has one. What it says of path migration must be possible.
    fn alternate_path(&self, qp: &Qp, attr: &QpAttr, merged: &QpAttr) -> Result<Option<Path>> {
        let alternate = match attr.alt_path {
            Some(alt) if alt.pkey_index != 0 => {
                return Err(Error::invalid(format!(
                    "P_Key index {} of ALT_PATH does not exist; the table has index 0",
                    alt.pkey_index
                )));
            }
            Some(alt) => {
                let attr = QpAttr {
                    av: Some(alt.av),
                    ..*merged
                };
                Some(self.connected_path(qp.id.qpn, &attr)?)
            }
            None => None,
        };
        match attr.path_mig_state {
            Some(MigState::Rearm) if alternate.is_none() && !qp.migration.has_alternate() => {
                Err(Error::invalid(
                    "PATH_MIG_STATE of REARM needs an alternate path; give ALT_PATH as well (a path that was migrated to \
                 is none any more)",
                ))
            }
            Some(MigState::Armed) if alternate.is_some() || qp.migration.state() != MigState::Armed => {
                Err(Error::invalid(
                    "PATH_MIG_STATE cannot be set to ARMED: ask for REARM, and it is when the peer agrees",
                ))
            }
            Some(MigState::Migrated | MigState::Rearm | MigState::Armed) | None => Ok(alternate),
        }
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
        alt_path: new.alt_path.or(old.alt_path),
        min_rnr_timer: new.min_rnr_timer.or(old.min_rnr_timer),
        sq_psn: new.sq_psn.or(old.sq_psn),
        max_dest_rd_atomic: new.max_dest_rd_atomic.or(old.max_dest_rd_atomic),
        // It moves by itself too: the queue pair keeps it elsewhere.
        path_mig_state: None,
        cap: old.cap,
        dest_qpn: new.dest_qpn.or(old.dest_qpn),
        rate_limit: new.rate_limit.or(old.rate_limit),
        sq_draining: false,
    }
}
