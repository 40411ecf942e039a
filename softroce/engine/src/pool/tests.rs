use std::collections::{BTreeSet, VecDeque};

use super::*;

/// Entries that are numbers.
struct Numbers(u8, Vec<u64>);

impl Store for Numbers {
    type Shape = u8;

    fn new(shape: u8) -> Self {
        Numbers(shape, Vec::new())
    }

    fn shape(&self) -> u8 {
        self.0
    }

    fn reserve(&mut self, entries: usize) -> Result<(), TryReserveError> {
        make_room(&mut self.1, entries)
    }

    fn extend_to(&mut self, entries: usize) {
        assert!(entries <= self.1.capacity(), "that would allocate");
        self.1.resize(entries, 0);
    }
}

struct Queue {
    ring: Ring,
    model: VecDeque<u64>,
}

fn queue(pools: &mut Pools<Numbers>, shape: u8, depth: u32) -> Queue {
    let share = pools.join(shape, depth).unwrap();
    Queue {
        ring: Ring::new(share, depth),
        model: VecDeque::new(),
    }
}

impl Queue {
    fn push(&mut self, pools: &mut Pools<Numbers>, value: u64) {
        let pool = pools.get_mut(self.ring.share());
        let slot = self.ring.push(pool);
        pool.store_mut().1[slot] = value;
        self.model.push_back(value);
    }

    fn check(&self, pools: &Pools<Numbers>) {
        let store = pools.get(self.ring.share()).store();
        let found: Vec<u64> = (self.ring.head()..self.ring.tail())
            .map(|number| store.1[self.ring.slot(number)])
            .collect();
        assert_eq!(VecDeque::from(found), self.model);
    }
}

/// Segments that are taken from the pool of this shape.
fn taken(pools: &Pools<Numbers>, shape: u8) -> u32 {
    let pool = pools.pools.iter().find(|pool| pool.store.0 == shape).unwrap();
    pool.segments.made - pool.segments.free.len() as u32
}

#[test]
fn queues_that_share_a_pool_keep_what_is_theirs_in_order_and_never_want_for_segments() {
    for depth in [1, 2, 3, 4, 5, 15, 16, 17, 64] {
        let mut pools = Pools::new();
        let mut queues: Vec<Queue> = (0..5).map(|_| queue(&mut pools, 1, depth)).collect();
        let (mut random, mut value) = (0x2545_f491_4f6c_dd1d_u64, 0);
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let queue = &mut queues[(random % 5) as usize];
            match (random >> 8) % 8 {
                0..=3 if !queue.ring.is_full() => {
                    value += 1;
                    queue.push(&mut pools, value);
                }
                4 | 5 if !queue.ring.is_empty() => {
                    queue.ring.pop(pools.get_mut(queue.ring.share()));
                    queue.model.pop_front();
                }
                6 if !queue.ring.is_empty() => {
                    queue.ring.unpush(pools.get_mut(queue.ring.share()));
                    queue.model.pop_back();
                }
                7 if (random >> 16) % 32 == 0 => {
                    queue.ring.clear(pools.get_mut(queue.ring.share()));
                    queue.model.clear();
                }
                _ => {}
            }
            queue.check(&pools);
        }
        for queue in &mut queues {
            queue.ring.clear(pools.get_mut(queue.ring.share()));
        }
        assert_eq!(taken(&pools, 1), 0, "depth {depth}");
        let pool = &pools.pools[0];
        let free: BTreeSet<u32> = pool.segments.free.iter().copied().collect();
        assert_eq!(
            free.len() as u32,
            pool.segments.made,
            "depth {depth}: given back twice"
        );
    }
}

#[test]
fn an_idle_queue_holds_nothing_and_one_entry_holds_one_segment() {
    let mut pools = Pools::new();
    let mut queue = queue(&mut pools, 1, 64);
    assert_eq!(taken(&pools, 1), 0);
    for round in 0..1000 {
        queue.push(&mut pools, round);
        assert_eq!(taken(&pools, 1), 1);
        queue.ring.pop(pools.get_mut(queue.ring.share()));
        queue.model.pop_front();
        assert_eq!(taken(&pools, 1), 0);
    }
}

#[test]
fn queues_that_are_used_in_turn_all_use_the_same_few_segments() {
    let mut pools = Pools::new();
    let mut queues: Vec<Queue> = (0..1000).map(|_| queue(&mut pools, 1, 64)).collect();
    for _ in 0..3 {
        for queue in &mut queues {
            queue.push(&mut pools, 1);
            queue.ring.pop(pools.get_mut(queue.ring.share()));
        }
    }
    assert_eq!(pools.pools[0].segments.made, 1);
}

#[test]
fn a_full_pool_gives_every_queue_all_that_it_reserved() {
    for depth in [1, 2, 7, 16, 33] {
        let mut pools = Pools::new();
        let mut queues: Vec<Queue> = (0..100).map(|_| queue(&mut pools, 1, depth)).collect();
        // Begin in the worst place of a segment.
        for round in 0..2 * u64::from(depth) {
            for queue in &mut queues {
                while !queue.ring.is_full() {
                    queue.push(&mut pools, round);
                }
                queue.check(&pools);
                queue.ring.pop(pools.get_mut(queue.ring.share()));
                queue.model.pop_front();
            }
        }
    }
}

#[test]
fn the_memory_of_a_shape_goes_with_its_last_queue_and_its_place_serves_another_shape() {
    let mut pools: Pools<Numbers> = Pools::new();
    let (one, two) = (pools.join(1, 16).unwrap(), pools.join(1, 16).unwrap());
    let other = pools.join(2, 16).unwrap();
    pools.leave(one);
    assert!(pools.get(two).store().1.capacity() > 0);
    pools.leave(two);
    assert_eq!(pools.pools[0].store.1.capacity(), 0);
    let third = pools.join(3, 16).unwrap();
    assert_eq!((pools.pools.len(), pools.get(third).store().0), (2, 3));
    assert_eq!(pools.get(other).store().0, 2);
}

#[test]
fn what_there_is_no_memory_for_is_refused_and_reserves_nothing() {
    let mut pools: Pools<Huge> = Pools::new();
    let error = pools.join((), u32::MAX / 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoMemory);
    assert!(pools.pools[0].is_unused());
}

/// Entries of a tebibyte.
struct Huge(Vec<[u8; 1 << 40]>);

impl Store for Huge {
    type Shape = ();

    fn new((): ()) -> Self {
        Huge(Vec::new())
    }

    fn shape(&self) {}

    fn reserve(&mut self, entries: usize) -> Result<(), TryReserveError> {
        make_room(&mut self.0, entries)
    }

    fn extend_to(&mut self, _: usize) {
        unreachable!("nothing was reserved");
    }
}
