package simulate

import (
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// Policy is what calls are decided by.
type Policy struct {
	Name  string // in reports
	Guard *guard.Policy
	Pools []queue.Pool
	// Workers is how many jobs of a pool run at once, in all workers together; 0 is
	// 64.
	Workers map[string]int
	Queue   queue.Options // burst, shares, weights and bounds
	// HoldFor is how long a plain caller waits; 0 is 280 s. Streams wait 10 minutes.
	HoldFor time.Duration
}

const (
	defaultWorkers = 64
	defaultHold    = 280 * time.Second
	streamWait     = 10 * time.Minute
	deadlineSlack  = 5 * time.Second // as of a connected caller's job
)
