// Package simulation runs several proxies and workers, their store and a provider in one
// process, with faults determined by a seed: what happens, when, and what fails.
//
// The packages are the real ones, and so are the scripts, which run on a real Redis. Time is
// virtual: a run is a testing/synctest bubble, and Redis gets its time and expires its keys by
// it. Every command passes through the link, where it waits until all goroutines are idle. Then
// the seed determines which command is executed next, and what happens to it, so a seed replays
// exactly. After every step the invariants are checked. After the last one the faults end, and
// everything must come to rest.
//
//	make simulate-faults SEEDS=200                    seeds 1 to 200
//	make simulate-faults SEED=7 FAMILY="pool outage"  one seed, with the log of its steps
//
// docs/internals/simulation.md describes what is simulated, what is checked, and what it found.
package simulation
