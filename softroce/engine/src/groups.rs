//! Multicast groups, and the queue pairs attached to them by slot.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Groups that an engine may know.
pub(crate) const MAX_GROUPS: usize = 256;
/// Queue pairs that a group may have.
pub(crate) const MAX_MEMBERS: usize = 240;
/// Attachments of all groups together.
pub(crate) const MAX_ATTACHMENTS: usize = 1 << 15;

/// The groups of an engine: none without a member.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<IpAddr, Vec<u32>>,
    attachments: usize,
}

/// What an attachment changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    First,
    Another,
    /// It was attached before.
    Already,
}

/// What a detachment changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    Last,
    OneOfSeveral,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Groups,
    Members,
    Attachments,
}

impl Groups {
    /// Attach the queue pair in `slot`.
    pub(crate) fn attach(&mut self, group: IpAddr, slot: u32) -> Result<Attached, Full> {
        let is_known = match self.members.get(&group) {
            Some(members) if members.contains(&slot) => return Ok(Attached::Already),
            Some(members) if members.len() >= MAX_MEMBERS => return Err(Full::Members),
            Some(_) => true,
            None => false,
        };
        if self.attachments >= MAX_ATTACHMENTS {
            return Err(Full::Attachments);
        }
        if !is_known && self.members.len() >= MAX_GROUPS {
            return Err(Full::Groups);
        }
        self.members.entry(group).or_default().push(slot);
        self.attachments += 1;
        Ok(if is_known {
            Attached::Another
        } else {
            Attached::First
        })
    }

    /// Detach it; `None` when it was not attached.
    pub(crate) fn detach(&mut self, group: IpAddr, slot: u32) -> Option<Detached> {
        let members = self.members.get_mut(&group)?;
        let at = members.iter().position(|member| *member == slot)?;
        members.remove(at);
        self.attachments -= 1;
        if members.is_empty() {
            self.members.remove(&group);
            return Some(Detached::Last);
        }
        Some(Detached::OneOfSeveral)
    }

    /// Attachments of all groups together.
    pub(crate) fn attachments(&self) -> usize {
        self.attachments
    }

    /// Slots of its members, in the order in which they came.
    pub(crate) fn members(&self, group: IpAddr) -> Option<&[u32]> {
        self.members.get(&group).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(last: u16) -> IpAddr {
        let [high, low] = last.to_be_bytes();
        IpAddr::from([239, 1, high, low])
    }

    #[test]
    fn the_first_member_makes_a_group_and_the_last_one_ends_it() {
        let mut groups = Groups::default();
        assert_eq!(groups.attach(group(1), 7), Ok(Attached::First));
        assert_eq!(groups.attach(group(1), 8), Ok(Attached::Another));
        assert_eq!(groups.attach(group(1), 7), Ok(Attached::Already));
        assert_eq!(groups.members(group(1)), Some(&[7, 8][..]));
        assert_eq!(groups.detach(group(1), 9), None);
        assert_eq!(groups.detach(group(2), 7), None);
        assert_eq!(groups.detach(group(1), 7), Some(Detached::OneOfSeveral));
        assert_eq!(groups.detach(group(1), 8), Some(Detached::Last));
        assert_eq!(groups.members(group(1)), None);
    }

    #[test]
    fn each_limit_is_kept_and_a_place_that_is_given_back_is_free_again() {
        let mut groups = Groups::default();
        for slot in 0..MAX_MEMBERS as u32 {
            groups.attach(group(0), slot).unwrap();
        }
        assert_eq!(groups.attach(group(0), 999), Err(Full::Members));
        assert_eq!(groups.attach(group(0), 0), Ok(Attached::Already));
        for last in 1..MAX_GROUPS as u16 {
            groups.attach(group(last), 0).unwrap();
        }
        assert_eq!(groups.attach(group(9000), 0), Err(Full::Groups));
        groups.detach(group(5), 0).unwrap();
        assert_eq!(groups.attach(group(9000), 0), Ok(Attached::First));
        let missing = MAX_ATTACHMENTS - groups.attachments;
        for number in 0..missing {
            let slot = 1 + (number / 200) as u32;
            groups.attach(group(10 + (number % 200) as u16), slot).unwrap();
        }
        assert_eq!(groups.attach(group(1), 5), Err(Full::Attachments));
        groups.detach(group(1), 0).unwrap();
        assert_eq!(groups.attach(group(2), 5), Ok(Attached::Another));
    }
}
