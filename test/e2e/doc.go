// Package e2e tests llmguard from outside: real processes, a real redis-server,
// a real provider-shaped HTTP server, real SDKs.
package e2e
