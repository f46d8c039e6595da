//! Capability database.
