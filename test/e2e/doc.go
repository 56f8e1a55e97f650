// Package e2e tests llmguard from the outside, with real processes, a real redis-server, an
// HTTP server that acts as the provider, and real SDKs.
package e2e
