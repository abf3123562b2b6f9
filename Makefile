# dev and test are all that a new machine needs; see README.md.
GO      ?= go
FUZZ    ?= 1m
COUNT   ?= 6

.PHONY: dev run build test race check fuzz bench packages

dev: ## a local server with a simulated upstream: no key, no network
	$(GO) run . dev

build: ## the static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o eisbach .

run: build ## the production server: make run CONFIG=eisbach.toml
	./eisbach serve --config $(or $(CONFIG),eisbach.toml)

test: packages ## every test
	$(GO) test -count=1 ./...

race: packages ## every test of the main module, with the race detector
	$(GO) test -race -count=1 ./...

check: ## what every commit passes
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(MAKE) race

fuzz: ## each fuzz target for FUZZ (1m)
	@$(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ { names = names " " $$1 } /^ok/ { n = split(names, f, " "); for (i = 1; i <= n; i++) print $$2, f[i]; names = "" }' | \
	while read -r package target; do \
		echo "$$package $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ) "$$package" || exit 1; \
	done

bench: ## what the edge adds and allocates; compare runs with benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) ./...

packages: ## the packages that tests need, where they can be installed
	@.ci/packages
