"""The Gymnasium environments: `CacheEnv`, its batched form `CacheVectorEnv`, and their registration."""
