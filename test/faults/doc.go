// Package faults tests the budget store while its Redis, or the network in front of it, fails.
// Many callers hold and settle meanwhile, and in the end the ledger, the limits and the callers
// must agree.
package faults
