// Package simulation runs several proxies and workers, their store and a provider in one
// process under faults that one seed decides: what happens, when, and what breaks.
//
// The packages are the real ones, and so are the scripts, which run on a real Redis. Time
// is virtual: a run is a testing/synctest bubble, and Redis is given the time and forgets
// keys by it. Every command passes the link, where it waits until all goroutines rest;
// then the seed says which one is carried out next, and what becomes of it. So a seed
// replays exactly. After every step the invariants are checked, and after the last one,
// when the faults have ended, that everything comes to rest.
//
//	make simulate-faults SEEDS=200                    seeds 1 to 200
//	make simulate-faults SEED=7 FAMILY="pool outage"  one seed, with the log of its steps
//
// docs/internals/simulation.md says what is simulated, what is checked, and what it found.
package simulation
