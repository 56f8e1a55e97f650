package admin

import (
	"github.com/llmguard/llmguard/internal/wire"
)

// Reloaded says what a reload of the configuration file has done.
type Reloaded struct {
	// Hash is the SHA-256 of the file, in hexadecimal.
	Hash string `json:"hash"`
	// Changed names what differs from before and is in force, by path: orgs,
	// queue.shares.
	Changed []string `json:"changed"`
	// NeedsRestart names what differs from what runs and is not in force before
	// a restart.
	NeedsRestart []string `json:"needs_restart"`
}

// reload is for this process alone: each reads its own copy of the file.
func (c *call) reload() (any, error) {
	if c.o.Reload == nil {
		return nil, wire.BadRequest("", "no_config_file", "This process was started without a configuration file to read again")
	}
	before := fileState{Hash: c.o.File().Hash}
	done, err := c.o.Reload(c.r.Context())
	e := c.entry("config.reload", "", "")
	if err != nil {
		e.Action = "config.reload_refused"
		if auditErr := c.commit(e, before, nil); auditErr != nil {
			return nil, auditErr
		}
		return nil, wire.BadRequest("", "config_refused", "The configuration was not reloaded; the old one goes on: %v", err)
	}
	return done, c.commit(e, before, done)
}

// fileState is what the audit says of the file that was in force.
type fileState struct {
	Hash string `json:"hash"`
}
