//! Real clusters, images, load and faults for Trainyard's tests.

mod cache;
pub mod cluster;
pub mod cluster_programs;
mod command;
pub mod differential;
pub mod faults;
pub mod framework_table;
pub mod hex;
pub mod images;
pub mod lab;
pub mod load;
pub mod namespace;
pub mod operator;
pub mod proc;
pub mod program;
pub mod seen;
pub mod waiting;
