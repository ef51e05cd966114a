//! Models of the hand-written synchronisation, and variants with a defect that each model must find.

mod blocking;
mod delivery;
mod exchange;
mod exclusive;
mod inbox;
mod memory;
mod notification_queue;
mod op_queue;
mod produce_memory;
mod ring;
mod slab;
mod slot_table;
mod switch;
mod sync_flag;
mod tail;
mod unsettled;
