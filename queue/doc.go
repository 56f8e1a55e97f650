// Package queue lets calls wait for provider quota and budget without losing
// one, and hands quota out, to live calls and to queued jobs alike.
//
// It promises: a job whose id was returned by Put ends exactly once in one
// terminal state, through the death of any process and a Redis restart with
// AOF; the grants of a pool never exceed its RPM, TPM or concurrency in any
// sliding minute; orgs, and users within an org, get equal shares.
//
// It does not promise that a job runs only once: a worker that dies while a
// provider works on its call leaves an attempt that may have been billed. Job
// counts attempts, and a claim's token fences late writers out.
//
// Everything of a pool lives under the hash tag of its id; see keys.go. A
// message wakes its workers, and a look once a second finds what no message told;
// the pool's state in Redis says what they may run.
package queue
