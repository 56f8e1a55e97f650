// Package agents runs coding agents and official SDKs, unmodified, against llmguard. `make agents` installs them.
package agents
