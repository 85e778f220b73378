//! Real clusters, images, load and faults for Trainyard's tests.

pub mod cluster;
pub mod images;
