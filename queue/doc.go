// Package queue lets calls wait for provider quota and budget without losing any, and hands
// out quota to live calls and queued jobs alike.
//
// It guarantees that a job whose id was returned by Put ends exactly once, in one terminal
// state, even if any process dies or a Redis with AOF restarts; that the grants of a pool
// never exceed its RPM, TPM or concurrency in any sliding minute; and that orgs, and users
// within an org, get equal shares.
//
// It does not guarantee that a job runs only once: a worker that dies while a provider
// processes its call leaves an attempt that may have been billed. Job counts attempts, and
// a claim's token fences out late writers.
//
// All keys of a pool share the hash tag of its id; see keys.go. A message wakes a pool's
// workers, and a check once a second finds work whose message was lost. The pool's state in
// Redis decides what the workers may run.
package queue
