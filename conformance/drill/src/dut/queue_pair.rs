//! Queue pairs of a script: made by its plan, and led from state to state.

use verbs_api::{
    Access, AddressVector, Connection, Error, Gid, Mtu, ProtectionDomain, Provider, QpAttr, QpCap, QpInit,
    QpState, QpType, QueuePair, SqSigType,
};

use super::{LocalDut, Qp};
use crate::call::{Change, QpPlan, Reply, Service};

impl<P: Provider> LocalDut<P> {
    pub(super) fn create_qp(&mut self, name: &str, plan: &QpPlan) -> Result<Reply, Error> {
        let srq = match &plan.srq {
            None => None,
            Some(name) => Some(self.srqs.get(name).ok_or_else(|| {
                Error::invalid(format!("no shared receive queue {name} is there (any more)"))
            })?),
        };
        let qp = self.pd.create_qp(&QpInit {
            qp_type: service(plan),
            send_cq: Some(&self.cq),
            recv_cq: Some(&self.cq),
            srq,
            xrc_domain: None,
            cap: QpCap {
                max_send_wr: plan.max_send_wr,
                max_recv_wr: if srq.is_some() { 0 } else { plan.max_recv_wr },
                max_send_sge: 4,
                max_recv_sge: if srq.is_some() { 0 } else { 4 },
                max_inline_data: 64,
            },
            sq_sig: SqSigType::OnRequest,
        })?;
        let ah = match plan.service {
            Service::Ud => Some(self.pd.create_ah(&self.vector(plan))?),
            Service::Rc | Service::Uc => None,
        };
        let reply = Reply::Qp {
            qpn: qp.qpn(),
            gid: self.gid.gid.0,
        };
        let plan = plan.clone();
        self.qps.insert(name.to_owned(), Qp { qp, plan, ah });
        Ok(reply)
    }

    fn vector(&self, plan: &QpPlan) -> AddressVector {
        AddressVector {
            dgid: Some(Gid(plan.dgid)),
            sgid_index: self.gid.index as u8,
            hop_limit: plan.hop_limit,
            traffic_class: plan.traffic_class,
            port: self.gid.port,
            ..AddressVector::default()
        }
    }

    pub(super) fn modify(&mut self, name: &str, change: &Change) -> Result<Reply, Error> {
        let state = match change.state {
            None => None,
            Some(code) => {
                Some(QpState::from_code(code).ok_or_else(|| Error::invalid(format!("no state {code}")))?)
            }
        };
        let qp = self.qp(name)?;
        let mut attr = match state {
            Some(state) => self.transition(&qp.plan, state)?,
            None => QpAttr::default(),
        };
        attr.timeout = change.timeout.or(attr.timeout);
        attr.retry_cnt = change.retry_cnt.or(attr.retry_cnt);
        attr.rnr_retry = change.rnr_retry.or(attr.rnr_retry);
        attr.min_rnr_timer = change.min_rnr_timer.or(attr.min_rnr_timer);
        attr.sq_psn = change.sq_psn.or(attr.sq_psn);
        attr.rq_psn = change.rq_psn.or(attr.rq_psn);
        attr.access = change.access.map(Access::from_bits_truncate).or(attr.access);
        qp.qp.modify(&attr)?;
        Ok(Reply::Done)
    }

    /// The attributes of the plan that a transition to `state` takes.
    fn transition(&self, plan: &QpPlan, state: QpState) -> Result<QpAttr, Error> {
        let connection = Connection {
            access: Access::from_bits_truncate(plan.access),
            qkey: plan.qkey,
            path_mtu: Mtu::from_bytes(plan.mtu as usize)
                .ok_or_else(|| Error::invalid(format!("{} is no path MTU", plan.mtu)))?,
            sq_psn: plan.sq_psn,
            rq_psn: plan.rq_psn,
            timeout: plan.timeout,
            retry_cnt: plan.retry_cnt,
            rnr_retry: plan.rnr_retry,
            min_rnr_timer: plan.min_rnr_timer,
            max_rd_atomic: plan.max_rd_atomic,
            max_dest_rd_atomic: plan.max_dest_rd_atomic,
            ..Connection::new(service(plan), self.vector(plan), plan.dest_qpn)
        };
        Ok(match state {
            QpState::Init => connection.to_init(),
            QpState::Rtr => connection.to_rtr(),
            QpState::Rts => connection.to_rts(),
            QpState::Reset | QpState::Sqd | QpState::Sqe | QpState::Err => QpAttr {
                state: Some(state),
                ..QpAttr::default()
            },
        })
    }
}

fn service(plan: &QpPlan) -> QpType {
    match plan.service {
        Service::Rc => QpType::Rc,
        Service::Uc => QpType::Uc,
        Service::Ud => QpType::Ud,
    }
}
